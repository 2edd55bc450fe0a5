"""What the store has not answered after a view had run: tried again until it does."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..stores.base import Outcome
from .claim import Attempt

if TYPE_CHECKING:
    from .store_calls import FailurePolicy

_logger = logging.getLogger("flask_idempotence")

RETRY_EVERY = 0.5
"""Seconds between attempts at what the store did not answer."""

MOST_FAILURES = 20
"""So many in a round, and the next ones are tried later. With fewer, some that are refused for
ever would keep the others waiting; with more, a store that is away would be flooded."""

WORK_FOR = 0.1
"""Seconds for which it works before the keeper looks at the leases again."""


class Unsettled:
    """A settlement that the store has not answered yet.

    Attributes:
        attempt: whose settlement it is.
        operation: its name.
        call: sends it.
        until: when it no longer matters, on the engine's clock.
        ended: is told the outcome, or None where it was given up.
    """

    __slots__ = ("attempt", "call", "ended", "operation", "until")

    def __init__(
        self,
        attempt: Attempt,
        operation: str,
        call: Callable[[], Outcome],
        until: float,
        ended: Callable[[Outcome | None], None] | None = None,
    ) -> None:
        self.attempt = attempt
        self.operation = operation
        self.call = call
        self.until = until
        self.ended = ended


class Backlog:
    """Settlements in the order of their next attempt.

    Only the keeper's thread works on it; any thread may add to it while it holds the keeper's
    lock.

    Args:
        policy: carries out the operations.
        clock: returns seconds that never go back.

    Attributes:
        due_at: when it wants to be worked on again, on that clock.
    """

    def __init__(self, policy: FailurePolicy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._waiting: deque[Unsettled] = deque()
        self.due_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, unsettled: Unsettled) -> None:
        """Go on trying this one."""
        self._waiting.append(unsettled)
        if len(self._waiting) == 1:
            self.due_at = self._clock() + RETRY_EVERY

    def work(self) -> None:
        """Try what is due, but only for a while: leases do not wait until all is settled."""
        stop_at = self._clock() + WORK_FOR
        failures = 0
        for _ in range(len(self._waiting)):
            if failures == MOST_FAILURES or not self.due_at <= self._clock() < stop_at:
                break
            unsettled = self._waiting.popleft()
            if self._clock() >= unsettled.until:
                _logger.warning("A settlement came too late: %s", unsettled.attempt)
                _end(unsettled, None)
            elif not self._ended(unsettled):
                # It may be this one that is refused, so next time others are tried first.
                self._waiting.append(unsettled)
                failures += 1
        if failures:
            self.due_at = self._clock() + RETRY_EVERY

    def try_last(self) -> bool:
        """Try one, a completion if there is any, and forget it; whether the store answered."""
        unsettled = min(self._waiting, key=lambda each: each.operation != "complete")
        self._waiting.remove(unsettled)
        return self._ended(unsettled)

    def _ended(self, unsettled: Unsettled) -> bool:
        try:
            outcome = self._policy.tell(unsettled.attempt, unsettled.operation, unsettled.call)
        except Exception:
            _logger.exception("A settlement failed: %s", unsettled.attempt)
            _end(unsettled, None)
            return True
        if outcome is None:
            return False
        _end(unsettled, outcome)
        return True


def _end(unsettled: Unsettled, outcome: Outcome | None) -> None:
    if unsettled.ended is not None:
        unsettled.ended(outcome)
