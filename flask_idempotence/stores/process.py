"""Forks, exit, daemon threads and living objects, for those that hold connections or locks."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


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


class Living(Generic[T]):
    """The objects of one kind in this process, for as long as each lives."""

    def __init__(self) -> None:
        self._objects: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()

    def add(self, each: T) -> None:
        """Add an object."""
        self._objects[id(each)] = each

    def __iter__(self) -> Iterator[T]:
        # A list of references is made in one step: other threads may add at the same time.
        return (each for known in self._objects.valuerefs() if (each := known()) is not None)


def _while_alive(method: Callable[[], None]) -> Callable[[], None]:
    reference = weakref.WeakMethod(method)

    def call() -> None:
        if (alive := reference()) is not None:
            alive()

    return call
