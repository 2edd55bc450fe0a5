"""One key for all attempts at a request, the rules of retrying, and one time limit.

urllib3's `Retry` decides by status alone. It cannot distinguish a replay from a first answer, or a
running request from a final refusal, and does not see an answer that breaks off in its body.
"""

from __future__ import annotations

import logging
import random
import re
import ssl
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import KW_ONLY, dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Protocol, TypeVar

from ..errors import PASSING, SAFE_METHODS
from ..stores.process import monotonic, time_of_day

RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""The statuses after which another attempt may fare better."""

LATE = "No whole answer within the time that Retries(seconds=...) allows."

# It finds scheme, host and path: user, query and fragment may be secret, as may all of another
# address.
_PLACE = re.compile(r"(\w+://)(?:[^/?#]*@)?([^?#]*)")

_logger = logging.getLogger("flask_idempotence.client")


class HasHeaders(Protocol):
    """A response of requests, httpx, urllib3, or any other library."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; their names in any case."""


class Answer(HasHeaders, Protocol):
    """A response of requests or httpx."""

    status_code: int

    def close(self) -> object:
        """Give its connection back."""


R = TypeVar("R", bound=Answer)


def new_key() -> str:
    """Return a new key: a UUID of 122 random bits, as text."""
    return str(uuid.uuid4())


def needs_key(method: str | None) -> bool:
    """Whether a method is unsafe, so that it must not be carried out twice."""
    return method is not None and method.upper() not in SAFE_METHODS


def put_key(headers: MutableMapping[str, str], name: str, *, quoted: bool) -> None:
    """Give a request its key: the one that it has, else a new one.

    The key stays with the request: it goes along where the request is redirected, and can be read
    from it (and sent again with it) when all attempts have failed.
    Quoted, it is a String of Structured Fields.
    """
    key = headers.get(name)
    if key is None:
        key = new_key()
    if quoted and isinstance(key, str) and not key.startswith('"'):
        key = '"' + re.sub(r'(["\\])', r"\\\1", key) + '"'
    headers[name] = key


def was_replayed(response: HasHeaders) -> bool:
    """Return whether a response is a replay of the one to an earlier attempt.

    Args:
        response: a response of requests, httpx, urllib3, or any object with `headers`.
    """
    return _value_of(response.headers, "Idempotent-Replayed") == "true"


def _value_of(headers: Mapping[str, str], name: str) -> str:
    return headers.get(name, "").strip().lower()


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that `Retry-After` asks for, or None.

    A date is compared with the answer's own `Date`, since the clocks of two machines differ;
    without one, with `now`, in seconds since 1970.
    """
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    until = _timestamp_of(value)
    if until is None:
        return None
    since = _timestamp_of(headers.get("Date", ""))
    return max(0.0, until - (now if since is None else since))


def _timestamp_of(date: str) -> float | None:
    """Return the seconds since 1970 of an HTTP date, or None where it is malformed."""
    try:
        moment = parsedate_to_datetime(date)
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


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
    clock: Callable[[], float] = monotonic
    now: Callable[[], float] = time_of_day
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError("Retries(attempts=...) must be 1 or more.")
        if not self.seconds > 0:
            raise ValueError("Retries(seconds=...) must be more than 0.")
        if not 0 <= self.first_wait <= self.longest_wait:
            raise ValueError("Retries(first_wait=...) must be from 0 to longest_wait.")

    def may_pass(self, answer: Answer) -> bool:
        """Whether another attempt may get another answer than this.

        A replay is final under any status. So is a result that the server's store has not
        acknowledged (`Idempotent-Stored: false`): another attempt would only wait for the store.
        """
        if was_replayed(answer) or _value_of(answer.headers, "Idempotent-Stored") == "false":
            return False
        refusal = _value_of(answer.headers, "Idempotence-Refusal")
        return refusal in PASSING if refusal else answer.status_code in self.statuses

    def wait_before(self, attempt: int) -> float:
        """Return the seconds before an attempt, counted from 1, without a `Retry-After`."""
        doublings = min(attempt - 2, 64)  # beyond that every wait is the longest
        wait = min(self.first_wait * 2.0**doublings, self.longest_wait)
        return wait * (0.5 + self.chance() / 2)


class Attempts:
    """The attempts at one request; log lines name it by method, host and path.

    Only a repeatable request, whose body can be sent again, is attempted more than once.

    Attributes:
        pause: seconds before the next attempt.
    """

    def __init__(self, retries: Retries, *, repeatable: bool, method: str, url: str) -> None:
        self._retries, self._repeatable = retries, repeatable
        place = _PLACE.match(url)
        self._name = method if place is None else f"{method} {place[1]}{place[2]}"
        self._begin = retries.clock()
        self._made, self.pause = 0, 0.0

    def make(
        self,
        attempt: Callable[[float], R],
        late: Callable[[], Exception],
        sleep: Callable[[float], object],
        no_answer: tuple[type[Exception], ...],
    ) -> R:
        """Attempt a request until its answer is final, or one of the errors `no_answer` is.

        An attempt takes so many seconds at most; then the error is `late`.
        """
        while True:
            with self.one(no_answer) as seconds:
                run = partial(attempt, seconds)
                # A body that can be read only once may belong to this thread.
                response = _in_time(seconds, run, late) if self._repeatable else run()
                if self.is_final(response):
                    return response
                response.close()
            sleep(self.pause)

    @contextmanager
    def one(self, no_answer: tuple[type[Exception], ...]) -> Iterator[float]:
        """Make one attempt, which may wait for so many seconds; pass a final error on.

        A note on that error counts the attempts, since any of them may have been carried out.
        """
        self._made += 1
        try:
            yield min(max(self._left(), 0.001), 86_400.0)  # sockets refuse a time-out of a month
        except no_answer as error:
            is_untrusted = _is_untrusted_certificate(error)
            if not is_untrusted and not self._is_last(0.0, type(error).__name__):
                return
            spent = self._retries.clock() - self._begin
            error.add_note(
                f"Attempts, all with the same key: {self._made}, in {spent:.1f} s."
                if self._repeatable
                else "Sent only once: the body cannot be read a second time."
            )
            raise

    def is_final(self, answer: Answer) -> bool:
        """Whether no other attempt follows; else `pause` is set."""
        if self._retries.may_pass(answer):
            asked = retry_after(answer.headers, self._retries.now()) or 0.0
            return self._is_last(asked, f"status {answer.status_code}")
        if was_replayed(answer):
            self._log(f"status {answer.status_code}, a replay.")
        return True

    def _is_last(self, asked: float, reason: str) -> bool:
        # Retry-After is a minimum: longer waits let a slow request finish before the attempts,
        # each asked to wait for a second, are used up.
        self.pause = max(asked, self._retries.wait_before(self._made + 1))
        is_last = not self._repeatable or self._made >= self._retries.attempts
        is_last |= self.pause > self._retries.longest_wait or self.pause >= self._left()
        self._log(f"{reason}. {'Gave up.' if is_last else f'Again in {self.pause:.1f} s.'}")
        return is_last

    def _log(self, end: str) -> None:
        attempts = self._retries.attempts
        _logger.info("Attempt %d of %d at %s: %s", self._made, attempts, self._name, end)

    def _left(self) -> float:
        return self._retries.seconds - (self._retries.clock() - self._begin)


def _is_untrusted_certificate(error: BaseException | None) -> bool:
    """Whether an error comes from a certificate that is not trusted, which no attempt changes."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None


def _in_time(seconds: float, attempt: Callable[[], R], late: Callable[[], Exception]) -> R:
    """Make an attempt in a thread, and raise the error `late` if it takes longer than it may.

    The time-outs of requests and httpx are for single steps: a server that sends a byte now and
    then never meets one, and resolving a name has none. A thread that is late is left behind; its
    own time-outs end it, or the end of the answer, which is closed.
    """
    done: Future[R] = Future()

    def run() -> None:
        try:
            done.set_result(attempt())
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
            done.set_exception(error)

    try:
        threading.Thread(target=copy_context().run, args=(run,), daemon=True).start()
    except RuntimeError:  # no threads at the interpreter's exit
        return attempt()
    try:
        if not wait([done], seconds).done:
            raise late()
    except BaseException:  # it may be a KeyboardInterrupt
        done.add_done_callback(_close)
        raise
    return done.result()


def _close(done: Future[R]) -> None:
    if done.exception() is None:
        done.result().close()
