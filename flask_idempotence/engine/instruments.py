"""What goes on inside, for those who measure; nobody else pays for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

_logger = logging.getLogger("flask_idempotence")

T = TypeVar("T")


class Observer:
    """Is told what no signal tells. Each method is called on the thread that it is about."""

    def store_asked(self, operation: str, seconds: float) -> None:
        """An operation has come back from the store, with an answer or without.

        Args:
            operation: its name.
            seconds: how long it took.
        """

    def keeper_late(self, seconds: float) -> None:
        """The keeper begins to renew what is due, so many seconds after it was."""

    def pending(self, count: int) -> None:
        """So many settlements in this process wait for the store to answer."""


class Observers:
    """The observers of one application; what they raise is logged, never passed on."""

    def __init__(self) -> None:
        self._observers: tuple[Observer, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._observers)

    def add(self, observer: Observer) -> None:
        """Tell one more."""
        self._observers += (observer,)

    def timed(self, operation: str, call: Callable[[], T]) -> T:
        """Carry out a store operation and tell how long it took."""
        if not self._observers:
            return call()
        began = time.perf_counter()
        try:
            return call()
        finally:
            seconds = time.perf_counter() - began
            self._tell(lambda observer: observer.store_asked(operation, seconds))

    def keeper_late(self, seconds: float) -> None:
        """Tell how late the keeper is."""
        self._tell(lambda observer: observer.keeper_late(seconds))

    def pending(self, count: int) -> None:
        """Tell how many settlements wait."""
        self._tell(lambda observer: observer.pending(count))

    def _tell(self, tell: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                tell(observer)
            except Exception:
                _logger.exception("An observer failed.")
