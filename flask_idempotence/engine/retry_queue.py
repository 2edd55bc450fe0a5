"""Retry queue for settlements that the store has not acknowledged."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..stores.base import Outcome
from .claim import Attempt
from .store_calls import FailurePolicy

_logger = logging.getLogger("flask_idempotence")

RETRY_EVERY = 0.5
"""Seconds between two attempts."""

MAX_FAILURES = 20
"""Failures after which the rest of a round waits for the next. With fewer, settlements that are
always refused would block the others; with more, a store in an outage would be flooded."""

TIME_SLICE = 0.1
"""Seconds of work between two rounds of renewals."""


@dataclass(eq=False, repr=False, slots=True)
class PendingSettlement:
    """A settlement that the store has not acknowledged."""

    attempt: Attempt
    operation: str
    call: Callable[[], Outcome]
    until: float  # when it no longer matters, on the engine's clock
    ended: Callable[[Outcome | None], None] | None = None  # None: it was given up

    def end(self, outcome: Outcome | None) -> None:
        if self.ended is not None:
            self.ended(outcome)


class RetryQueue:
    """Pending settlements in the order of their next attempt.

    Only the keeper's thread works on it; any thread may add to it under the keeper's lock.

    Attributes:
        due_at: time of the next attempt, on the engine's clock.
    """

    def __init__(self, policy: FailurePolicy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._pending: deque[PendingSettlement] = deque()
        self.due_at = 0.0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, settlement: PendingSettlement) -> None:
        self._pending.append(settlement)
        if len(self._pending) == 1:
            self.due_at = self._clock() + RETRY_EVERY

    def work(self) -> None:
        """Try due settlements for one time slice: leases do not wait until all are settled."""
        stop_at = self._clock() + TIME_SLICE
        failures = 0
        for _ in range(len(self._pending)):
            if failures == MAX_FAILURES or not self.due_at <= self._clock() < stop_at:
                break
            settlement = self._pending.popleft()
            if self._clock() >= settlement.until:
                _logger.warning("A settlement came too late: %s", settlement.attempt)
                settlement.end(None)
            elif not self._try(settlement):
                self._pending.append(settlement)  # last: the store may refuse only this one
                failures += 1
        if failures:
            self.due_at = self._clock() + RETRY_EVERY

    def try_last(self) -> bool:
        """Try one for the last time, completions first; return whether the store answered."""
        settlement = min(self._pending, key=lambda each: each.operation != "complete")
        self._pending.remove(settlement)
        return self._try(settlement)

    def _try(self, settlement: PendingSettlement) -> bool:
        """Try a settlement; return whether it has ended, also by an error of another kind."""
        outcome = None
        try:
            outcome = self._policy.call(
                settlement.attempt, settlement.operation, settlement.call, after_view=True
            )
        except Exception:
            _logger.exception("A settlement failed: %s", settlement.attempt)
        else:
            if outcome is None:
                return False
        settlement.end(outcome)
        return True
