"""Forks and the end of a process, for objects that hold connections, threads or locks."""

from __future__ import annotations

import atexit
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


def call_at_exit(method: Callable[[], None]) -> None:
    """Call a bound method when the interpreter ends, if its object is still alive by then.

    All threads that are not daemons have ended at that time.
    """
    reference = weakref.WeakMethod(method)

    def call() -> None:
        if (alive := reference()) is not None:
            alive()

    atexit.register(call)
