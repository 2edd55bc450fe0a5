"""What a fork leaves behind in the child: locks held by threads that do not exist there."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


def call_in_children(method: Callable[[], None]) -> None:
    """Call a bound method in every child process, for as long as its object lives."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        if (alive := reference()) is not None:
            alive()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)
