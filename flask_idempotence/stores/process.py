"""Forks, exit and daemon threads, for objects that hold connections, threads or locks."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable


def call_in_children(method: Callable[[], None]) -> None:
    """Call a bound method in every child process, for as long as its object lives."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_while_alive(method))


def call_at_exit(method: Callable[[], None]) -> None:
    """Call a bound method when the interpreter ends, if its object is still alive by then.

    All threads that are not daemons have ended at that time.
    """
    atexit.register(_while_alive(method))


def start_daemon(run: Callable[[], None], name: str) -> bool:
    """Start a daemon thread; return False where the process can have no further thread."""
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True


def _while_alive(method: Callable[[], None]) -> Callable[[], None]:
    reference = weakref.WeakMethod(method)

    def call() -> None:
        if (alive := reference()) is not None:
            alive()

    return call
