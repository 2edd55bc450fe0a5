"""The deadline of the operation that a thread is at."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import TimeoutError as RedisTimeoutError


class Deadline(threading.local):
    """When the operation that this thread is at must be over, on the monotonic clock."""

    at: float = float("inf")
    is_short: bool = False
    """Whether the operation was allowed less time than usual."""
    may_have_arrived: bool = False
    """Whether the operation was sent before, and nobody knows what became of it."""
    _most: float = float("inf")

    def begin(self, seconds: float) -> None:
        """Begin an operation that may take so many seconds in all."""
        self.at = time.monotonic() + min(seconds, self._most)
        self.is_short = self._most < seconds
        self.may_have_arrived = False

    @contextmanager
    def at_most(self, seconds: float) -> Iterator[None]:
        """Allow each operation that begins in this block so many seconds at most."""
        before, self._most = self._most, seconds
        try:
            yield
        finally:
            self._most = before

    def left(self) -> float:
        """Return the seconds that are left.

        Raises:
            RedisTimeoutError: none are.
        """
        left = self.at - time.monotonic()
        if left <= 0:
            raise RedisTimeoutError("The deadline has passed.")
        return left

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return time.monotonic() >= self.at

    @contextmanager
    def share(self, parts: int) -> Iterator[None]:
        """Allow one of so many parts of what is left; the others are for what comes after."""
        whole = self.at
        self.at = time.monotonic() + self.left() / parts
        try:
            yield
        finally:
            self.at = whole

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Allow so many seconds, if that much is left."""
        whole = self.at
        self.at = min(whole, time.monotonic() + seconds)
        try:
            yield
        finally:
            self.at = whole

    def pause(self, seconds: float) -> bool:
        """Sleep, unless the operation would then be out of time; whether it has slept."""
        if time.monotonic() + seconds >= self.at:
            return False
        time.sleep(seconds)
        return True


deadline: Deadline = Deadline()
