"""When a request is sent again, and after how long: the rules, without any network.

urllib3's `Retry` decides by status alone. It cannot tell a replay from a first answer or a request
that is still running from a refusal for good, and does not see an answer that breaks off in its
body; these rules do.
"""

from __future__ import annotations

import logging
import random
import ssl
import time
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass

from .answers import PASSING_REFUSALS, Answer

RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""The statuses after which another attempt may fare better."""

_logger = logging.getLogger("flask_idempotence.client")


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is sent, and how long that may take.

    The waits double from one to the next, and each is cut by chance to between half of it and all
    of it, so that many callers do not come back together. By default they add up to more than 30
    seconds, after which a server lets go of the key of a process that died.

    Attributes:
        attempts: how often a request is sent at most, the first time included.
        seconds: how long all attempts and waits may take. No attempt may go without a sign of the
            server for longer than what is left of it, whatever its own timeout says.
        first_wait: seconds before the second attempt.
        longest_wait: the most seconds between two attempts. An answer whose `Retry-After` asks for
            more is final.
        statuses: after which a request is sent again, where the answer is no refusal of this
            library: of those, the header `Idempotence-Refusal` decides.
        clock: seconds that never go back; for tests.
        now: seconds since 1970; for tests.
        chance: a number from 0 to 1; for tests.

    Raises:
        ValueError: a number is out of its range.
    """

    attempts: int = 8
    seconds: float = 120.0
    first_wait: float = 0.5
    longest_wait: float = 30.0
    statuses: Collection[int] = RETRIED_STATUSES
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError("Retries(attempts=...) must be 1 or more.")
        if not self.seconds > 0:
            raise ValueError("Retries(seconds=...) must be more than 0.")
        if not 0 <= self.first_wait <= self.longest_wait:
            raise ValueError("Retries(first_wait=...) must be from 0 to longest_wait.")

    def may_pass(self, answer: Answer) -> bool:
        """Whether another attempt may get another answer than this."""
        if answer.is_settled:
            return False
        refusal = answer.refusal
        return refusal in PASSING_REFUSALS if refusal else answer.status in self.statuses

    def wait_before(self, attempt: int) -> float:
        """Return the seconds before an attempt, counted from 1, where the server names none."""
        doublings = min(attempt - 2, 64)  # beyond that every wait is the longest
        wait = min(self.first_wait * 2.0**doublings, self.longest_wait)
        return wait * (0.5 + self.chance() / 2)


class Attempts:
    """The attempts at one request.

    Args:
        retries: the rules.
        can_be_repeated: whether its body can be sent again.
        request: what to call it in log lines.
    """

    def __init__(self, retries: Retries, *, can_be_repeated: bool, request: str) -> None:
        self._retries = retries
        self._can_be_repeated = can_be_repeated
        self._request = request
        self._begin = retries.clock()
        self._made = 0

    def begin(self) -> float:
        """Count one more attempt; return for how many seconds it may wait for the server."""
        self._made += 1
        return max(self._left(), 0.001)

    def wait_after_answer(self, answer: Answer) -> float | None:
        """Return the seconds until the next attempt, or None where this answer is final."""
        if not self._retries.may_pass(answer):
            return None
        asked = answer.retry_after(self._retries.now()) or 0.0
        return self._wait(asked, f"status {answer.status}")

    def wait_after_error(self, error: Exception) -> float | None:
        """Return the seconds until the next attempt, or None where the error is to be raised.

        It is told then how often the request was sent: all that the caller knows is that it may
        have been carried out.
        """
        wait = None if _is_about_trust(error) else self._wait(0.0, type(error).__name__)
        if wait is None:
            error.add_note(self._account())
        return wait

    def _wait(self, asked: float, reason: str) -> float | None:
        if not self._can_be_repeated or self._made >= self._retries.attempts:
            return None
        # Retry-After is the least that the server wants; where it wants a second for the tenth
        # time, waiting longer is what lets a slow request finish before the attempts are used up.
        wait = max(asked, self._retries.wait_before(self._made + 1))
        if wait > self._retries.longest_wait or wait >= self._left():
            return None
        _logger.info(
            "Attempt %d of %d at %s: %s. Again in %.1f s.",
            self._made,
            self._retries.attempts,
            self._request,
            reason,
            wait,
        )
        return wait

    def _left(self) -> float:
        return self._retries.seconds - (self._retries.clock() - self._begin)

    def _account(self) -> str:
        if not self._can_be_repeated:
            return "It was sent once only: its body cannot be read a second time."
        spent = self._retries.clock() - self._begin
        return f"Attempts, all with the same key: {self._made}, in {spent:.1f} s."


def _is_about_trust(error: BaseException) -> bool:
    """Whether an error comes of a certificate that is not trusted, which no attempt changes."""
    seen: list[BaseException] = [error]
    for known in seen:
        if isinstance(known, ssl.SSLCertVerificationError):
            return True
        for reason in (known.__cause__, known.__context__):
            if reason is not None and reason not in seen:
                seen.append(reason)
    return False
