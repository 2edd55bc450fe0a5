"""Circuit breaker: after a few failures in a row, only an occasional probe passes."""

from __future__ import annotations

import threading
import time

from redis.exceptions import ConnectionError as RedisConnectionError

from .wire import deadline

OPEN_AFTER = 3
"""Failures in a row that open the circuit."""

PROBE_EVERY = 0.5
"""Seconds from the end of one probe to the next."""


class CircuitOpenError(RedisConnectionError):
    """The circuit is open: the server has not been asked."""


class CircuitBreaker:
    """Circuit breaker for one server, or for its replicas."""

    __slots__ = ("_lock", "_next_probe", "failures")

    def __init__(self) -> None:
        self.failures: int = 0
        self._next_probe = 0.0
        self._lock = threading.Lock()

    def allows(self) -> bool:
        """Whether the circuit is closed, or this operation is the probe."""
        if self.failures < OPEN_AFTER:
            return True
        with self._lock:
            if time.monotonic() < self._next_probe:
                return False
            self._next_probe = deadline.at + PROBE_EVERY
            return True

    def record_failure(self) -> None:
        """Count a failure; the next probe is due after a pause."""
        self.failures += 1
        self._next_probe = time.monotonic() + PROBE_EVERY

    def record_success(self) -> None:
        """Close the circuit."""
        self.failures = 0
