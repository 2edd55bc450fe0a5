"""One deadline for all that an operation does: connect, send, wait, follow a redirection."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import TimeoutError as RedisTimeoutError


class Deadline(threading.local):
    """The deadline of the calling thread's operation, in seconds of the monotonic clock."""

    at: float = float("inf")
    is_short: bool = False
    """Whether the operation was allowed less time than usual."""
    may_have_arrived: bool = False
    """Whether an earlier attempt was sent and its effect is unknown."""
    _cap: float = float("inf")

    def begin(self, seconds: float) -> None:
        """Begin an operation that may take this many seconds in all."""
        self.at = time.monotonic() + min(seconds, self._cap)
        self.is_short = self._cap < seconds
        self.may_have_arrived = False

    @contextmanager
    def cap(self, seconds: float) -> Iterator[None]:
        """Cap each operation that begins in this block."""
        before, self._cap = self._cap, seconds
        try:
            yield
        finally:
            self._cap = before

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Limit a part of the current operation; the rest of its time is for later parts."""
        whole = self.at
        self.at = min(whole, time.monotonic() + seconds)
        try:
            yield
        finally:
            self.at = whole

    def left(self) -> float:
        """Return the remaining seconds.

        Raises:
            RedisTimeoutError: the deadline has passed.
        """
        left = self.at - time.monotonic()
        if left <= 0:
            raise RedisTimeoutError("The deadline has passed.")
        return left

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.at

    def pause(self, seconds: float) -> bool:
        """Sleep, if the deadline allows; return whether it did."""
        if time.monotonic() + seconds >= self.at:
            return False
        time.sleep(seconds)
        return True


deadline: Deadline = Deadline()
