"""The failure policy and the instruments around each call of the store.

The only place that catches a `StoreError`.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ..config.settings import REJECT, Config
from ..errors import StoreError
from ..response.refusals import StoreUnavailable
from ..signals import store_failed
from ..stores.process import call_in_children
from .claim import Attempt

_logger = logging.getLogger("flask_idempotence")

T = TypeVar("T")

LOG_EVERY = 5.0
"""Seconds between two log lines about a store that does not answer."""


class FailurePolicy:
    """Calls the store, and applies the policy where it does not answer.

    Before a view runs, `on_store_error` of its route applies, else `IDEMPOTENCE_ON_STORE_ERROR`:
    see `before_view`. After it has run, its answer goes out in any case: see `after_view`.

    Every failure is a signal. In an outage each request fails, so the log gets a line for the
    first failure, and then one every few seconds.

    Attributes:
        instruments: measure the calls; their exceptions are logged, never passed on.
    """

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._default = config.on_store_error
        self._clock = clock
        self.instruments: tuple[Instrument, ...] = ()
        self._forget()
        call_in_children(self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._next_line_at = float("-inf")
        self._withheld = 0

    def before_view(
        self,
        attempt: Attempt,
        operation: str,
        call: Callable[[], T],
        *,
        on_unknown: Callable[[], None] | None = None,
    ) -> T | None:
        """Call the store to learn whether a view may run; None where it runs unguarded.

        `on_unknown` is called where the operation was sent, and may have taken effect.

        Raises:
            StoreUnavailable: the store does not answer, and the policy is to reject.
        """
        try:
            return self._timed(operation, call) if self.instruments else call()
        except StoreError as error:
            self._report(attempt, operation, error)
            if on_unknown is not None and error.sent:
                on_unknown()
            if (attempt.on_store_error or self._default) == REJECT:
                raise StoreUnavailable from error
            return None
        except Exception as error:
            clear_locals(error)
            raise

    def after_view(self, attempt: Attempt, operation: str, call: Callable[[], T]) -> T | None:
        """Call the store where the result can no longer change the answer.

        Returns the known part where some servers did not answer; None for no answer.
        """
        try:
            return self._timed(operation, call) if self.instruments else call()
        except StoreError as error:
            self._report(attempt, operation, error)
            known: T | None = error.answers  # type: ignore[assignment]  # the same type as `call`'s
            return known
        except Exception as error:
            clear_locals(error)
            raise

    def _timed(self, operation: str, call: Callable[[], T]) -> T:
        error: StoreError | None = None
        self.measure(lambda each: each.store_call_begins(operation))
        began = time.perf_counter()
        try:
            return call()
        except StoreError as raised:
            error = raised
            raise
        finally:
            done = StoreCall(operation, time.perf_counter() - began, error)
            self.measure(lambda each: each.store_call_ends(done))

    def measure(self, pass_on: Callable[[Instrument], None]) -> None:
        """Pass a measurement on to each instrument."""
        for instrument in self.instruments:
            try:
                pass_on(instrument)
            except Exception:
                _logger.exception("An instrument failed.")

    def _report(self, attempt: Attempt, operation: str, error: StoreError) -> None:
        clear_locals(error)
        now = self._clock()
        with self._lock:
            is_due, withheld = now >= self._next_line_at, self._withheld
            self._withheld = 0 if is_due else withheld + 1
            if is_due:
                self._next_line_at = now + LOG_EVERY
        if is_due:
            _logger.warning(
                "The store did not answer: operation=%s %s (%s)%s",
                operation,
                attempt,
                error,
                f"; {withheld} more times since the last such line" if withheld else "",
            )
        attempt.emit(store_failed, operation=operation, error=error)


def clear_locals(error: BaseException) -> None:
    """Clear the local variables below the caller in the tracebacks of an error and its causes.

    Error reports show them. A store's have the record of a response, in each of the forms that it
    takes on its way to the server.
    """
    below: set[object] = set()
    chain: list[BaseException] = [error]
    for each in chain:
        found = each.__traceback__
        # An error that is being handled around the call is no cause: its frames are not below.
        if found is not None and (not below or found.tb_frame in below):
            traceback.clear_frames(found)
            below.update(frame for frame, _ in traceback.walk_tb(found))
            more = (each.__context__, each.__cause__)
            chain += [other for other in more if other is not None and other not in chain]


class StoreCall(NamedTuple):
    """A finished operation of the store; its error, where there was no answer."""

    operation: str
    seconds: float
    error: StoreError | None


class Instrument:
    """Receives measurements, each on the measured thread; override the methods you need."""

    def store_call_begins(self, operation: str) -> None:
        """Take note of a store operation, right before it begins."""

    def store_call_ends(self, call: StoreCall) -> None:
        """Take a store operation, answered or not."""

    def renewal_delay(self, seconds: float) -> None:
        """Take the delay between the time when a renewal was due and its beginning."""

    def retry_queue_length(self, count: int) -> None:
        """Take the number of settlements in this process's retry queue."""
