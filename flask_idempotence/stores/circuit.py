"""A circuit breaker: a server that does not answer is not asked by every request."""

from __future__ import annotations

import threading
import time

from .process import call_in_children

OPEN_AFTER = 3  # time-outs in a row that open the circuit
PROBE_EVERY = 0.5  # seconds from one operation that is sent while it is open to the next


class CircuitBreaker:
    """Counts the time-outs of one server, or of its replicas.

    Attributes:
        timeouts: how many there were in a row.
    """

    def __init__(self) -> None:
        self._begin()
        call_in_children(self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self.timeouts = 0
        self._probe_at = 0.0
        self._answered = 0.0  # when the last operation began that was answered

    def allows(self, probed_until: float = 0.0) -> bool:
        """Return whether the circuit is closed, or this operation is the probe.

        The next probe is counted from the time `probed_until`, if that is to come.
        """
        if self.timeouts < OPEN_AFTER:
            return True
        with self._lock:
            now = time.monotonic()
            if now < self._probe_at:
                return False
            self._probe_at = max(now, probed_until) + PROBE_EVERY
            return True

    def count(self, began: float, *, timed_out: bool) -> None:
        """Count an operation that was sent: a time-out, or an answer."""
        if not timed_out:
            self.timeouts, self._answered = 0, max(began, self._answered)
        elif began > self._answered:  # an older one says nothing about the server now
            with self._lock:
                self.timeouts += 1
                self._probe_at = time.monotonic() + PROBE_EVERY

    def probe_next(self) -> None:
        """Let the next operation through: the server seems to answer again."""
        self._probe_at = 0.0
