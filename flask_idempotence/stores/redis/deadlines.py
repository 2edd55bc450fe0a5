"""The deadline of an operation of the store, in a context variable: greenlets share a thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, NamedTuple

from redis.exceptions import TimeoutError as RedisTimeoutError

from ..base import TimeLimit


class Operation(NamedTuple):
    """An operation under way; times are seconds, by the monotonic clock."""

    at: float = float("inf")  # its time ends then
    length: float = float("inf")  # it had so much time in all
    is_short: bool = False  # it has less time than usual: breakers neither stop nor count it
    may_have_arrived: bool = False  # an earlier attempt was sent, and its effect is unknown


_NONE = Operation()


class Deadline(TimeLimit):
    """The deadline of the operation that the calling thread or greenlet is carrying out.

    It holds for all that an operation does: connect, send, wait, follow a redirection.
    """

    def __init__(self) -> None:
        super().__init__()
        self._operation = ContextVar("operation", default=_NONE)

    def begin(self, seconds: float) -> Token[Operation]:
        """Begin an operation; `end` takes the token."""
        length = min(seconds, self.cap)
        is_short = length < seconds
        return self._operation.set(Operation(time.monotonic() + length, length, is_short))

    def end(self, token: Token[Operation]) -> None:
        self._operation.reset(token)

    def update(self, **changes: Any) -> None:
        self._operation.set(self.now._replace(**changes))

    @property
    def now(self) -> Operation:
        return self._operation.get()

    @property
    def at(self) -> float:
        return self._operation.get().at

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Limit a part of the current operation; the rest of its time is for later parts."""
        whole = self.at
        self.update(at=min(whole, time.monotonic() + seconds))
        try:
            yield
        finally:
            self.update(at=whole)

    def left(self) -> float:
        """Return the remaining seconds, or raise RedisTimeoutError if there are none."""
        left = self._operation.get().at - time.monotonic()
        if left <= 0:
            raise RedisTimeoutError("The deadline has passed.")
        return left

    def pause(self, seconds: float) -> bool:
        """Sleep if there is time for it; with a stopped clock, the sleeps themselves end it."""
        began = time.monotonic()
        if began + seconds >= self.at:
            return False
        time.sleep(seconds)
        self.update(at=self.at - max(0.0, began + seconds - time.monotonic()))
        return True


deadline: Deadline = Deadline()
