"""The end of a process, where there is time to say good-bye."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable


def call_at_exit(method: Callable[[], None]) -> None:
    """Call a bound method when the interpreter ends, if its object is still alive by then.

    All threads that are not daemons have ended at that time.
    """
    reference = weakref.WeakMethod(method)

    def call() -> None:
        if (alive := reference()) is not None:
            alive()

    atexit.register(call)
