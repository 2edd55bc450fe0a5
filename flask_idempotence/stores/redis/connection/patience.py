"""Whom one still waits for: after a few failures in a row, one operation at a time."""

from __future__ import annotations

import threading
import time

from .deadline import deadline

FAILURES = 3
"""After so many failures in a row not every operation waits any more."""

LOOK_EVERY = 0.5
"""Seconds between two operations that look whether all is well again."""


class Patience:
    """Says whether an operation shall wait for something that has failed before.

    Attributes:
        failures: how many there were in a row.
    """

    __slots__ = ("_lock", "_next_look", "failures")

    def __init__(self) -> None:
        self.failures: int = 0
        self._next_look = 0.0
        self._lock = threading.Lock()

    def has_turn(self) -> bool:
        """Whether this operation shall wait: it fails seldom, or it is the one that looks."""
        if self.failures < FAILURES:
            return True
        with self._lock:
            if time.monotonic() < self._next_look:
                return False
            # The others wait for what comes of this one.
            self._next_look = deadline.at + LOOK_EVERY
            return True

    def failed(self) -> None:
        """Note that waiting was in vain."""
        self.failures += 1
        self._next_look = time.monotonic() + LOOK_EVERY

    def succeeded(self) -> None:
        """Note that it was not."""
        self.failures = 0
