"""The rules of retrying, without any network.

urllib3's `Retry` decides by status alone. It cannot distinguish a replay from a first answer, or a
running request from a final refusal, and does not see an answer that breaks off in its body.
"""

from __future__ import annotations

import logging
import random
import ssl
import time
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from urllib.parse import urlsplit

from ..errors import PASSING
from .answers import Answer, was_replayed

RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""The statuses after which another attempt may fare better."""

MAX_SECONDS = 86_400.0
"""Most seconds that an attempt may take: sockets refuse a time-out of a month."""

_logger = logging.getLogger("flask_idempotence.client")


@dataclass(frozen=True, slots=True)
class Retries:
    """Rules of retrying: how often and for how long, with exponential backoff and jitter.

    The waits double, and jitter takes up to half off each, so that many callers do not retry at
    the same time. By default they add up to more than 30 seconds, the lease after which a server
    releases the key of a process that died.

    Attributes:
        attempts: the most attempts at a request, the first one included.
        seconds: the most seconds that all attempts and waits may take: connecting, sending and
            the whole answer; of a streamed answer, its headers. Each attempt's timeout is cut to
            the remaining seconds.
        first_wait: seconds before the second attempt.
        longest_wait: the most seconds between two attempts. An answer whose `Retry-After` asks for
            more is final.
        statuses: the statuses after which a request is sent again. For a refusal of this
            library, the header `Idempotence-Refusal` decides instead.
        clock: returns monotonic seconds; for tests.
        now: returns seconds since 1970; for tests.
        chance: returns a number from 0 to 1; for tests.

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
        return refusal in PASSING if refusal else answer.status in self.statuses

    def wait_before(self, attempt: int) -> float:
        """Return the seconds before an attempt, counted from 1, without a `Retry-After`."""
        doublings = min(attempt - 2, 64)  # beyond that every wait is the longest
        wait = min(self.first_wait * 2.0**doublings, self.longest_wait)
        return wait * (0.5 + self.chance() / 2)


class Attempts:
    """The attempts at one request; log lines name it by method, host and path.

    Only a repeatable request, whose body can be sent again, is attempted more than once.
    """

    def __init__(self, retries: Retries, *, repeatable: bool, method: str, url: str) -> None:
        self._retries = retries
        self._repeatable = repeatable
        self._method = method
        self._url = url
        self._begin = retries.clock()
        self._made = 0

    def begin(self) -> float:
        """Count one more attempt; return for how many seconds it may wait for the server."""
        self._made += 1
        return min(max(self._left(), 0.001), MAX_SECONDS)

    def wait_after_answer(self, answer: Answer) -> float | None:
        """Return the seconds until the next attempt, or None where this answer is final."""
        if not self._retries.may_pass(answer):
            if was_replayed(answer):
                self._log("Attempt %d of %d at %s: status %d, a replay.", answer.status)
            return None
        asked = answer.retry_after(self._retries.now()) or 0.0
        return self._wait(asked, f"status {answer.status}")

    def wait_after_error(self, error: Exception) -> float | None:
        """Return the seconds until the next attempt, or None where the error is to be raised.

        A note on that error counts the attempts, since any of them may have been carried out.
        """
        wait = None if _is_untrusted_certificate(error) else self._wait(0.0, type(error).__name__)
        if wait is None and self._repeatable:
            spent = self._retries.clock() - self._begin
            error.add_note(f"Attempts, all with the same key: {self._made}, in {spent:.1f} s.")
        elif wait is None:
            error.add_note("Sent only once: the body cannot be read a second time.")
        return wait

    def _wait(self, asked: float, reason: str) -> float | None:
        # Retry-After is a minimum: longer waits let a slow request finish before the attempts,
        # each asked to wait for a second, are used up.
        wait = max(asked, self._retries.wait_before(self._made + 1))
        is_last = not self._repeatable or self._made >= self._retries.attempts
        if is_last or wait > self._retries.longest_wait or wait >= self._left():
            self._log("Attempt %d of %d at %s: %s. Gave up.", reason)
            return None
        self._log("Attempt %d of %d at %s: %s. Again in %.1f s.", reason, wait)
        return wait

    def _log(self, text: str, *arguments: object) -> None:
        if _logger.isEnabledFor(logging.INFO):
            name = _name_of(self._method, self._url)
            _logger.info(text, self._made, self._retries.attempts, name, *arguments)

    def _left(self) -> float:
        return self._retries.seconds - (self._retries.clock() - self._begin)


def _name_of(method: str, url: str) -> str:
    """Return the method, host and path of a request; user, query and fragment may be secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return method
    if not parts.netloc:  # an opaque address, which may hold anything
        return method
    return f"{method} {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _is_untrusted_certificate(error: BaseException) -> bool:
    """Whether an error comes from a certificate that is not trusted, which no attempt changes."""
    chain: list[BaseException] = [error]
    for each in chain:
        if isinstance(each, ssl.SSLCertVerificationError):
            return True
        for reason in (each.__cause__, each.__context__):
            if reason is not None and reason not in chain:
                chain.append(reason)
    return False
