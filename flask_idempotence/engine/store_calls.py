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

from flask import has_request_context

from ..config.settings import Config
from ..errors import StoreError
from ..request.proxies import current_request
from ..response.refusals import StoreUnavailable
from ..signals import store_failed
from ..stores.process import call_in_children
from .guard import Claim
from .state import state_of

_logger = logging.getLogger("flask_idempotence")

T = TypeVar("T")

LOG_EVERY = 5.0  # seconds between two log lines about a store that does not answer

# Seconds that the store may take of a request that is only observed, for all guards together.
OBSERVED_SECONDS = 0.1

# Operations without whose answer a view runs unguarded, where the policy is to allow it.
_RUN_VIEWS = frozenset({"claim", "take_token"})


class StoreCalls:
    """Calls the store, and applies the policy where it does not answer.

    Before a view runs, `on_store_error` of its route applies, else `IDEMPOTENCE_ON_STORE_ERROR`.
    After it has run, its answer goes out in any case.

    Every failure is a signal. In an outage each request fails, so the log gets a line for the
    first failure of each kind, then one every few seconds, and one when the store answers again.
    """

    def __init__(self, config: Config, clock: Callable[[], float]) -> None:
        self._default = config.on_store_error
        self._clock = clock
        self.instruments: tuple[Instrument, ...] = ()
        self._forget()
        call_in_children(self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._next_line_at: dict[str, float] = {}  # of each kind of error
        self._withheld = self._refused = self._unguarded = 0
        self._failing_since: float | None = None
        self._failed_at = 0.0
        self._has_warned = False

    def call(
        self,
        claim: Claim,
        operation: str,
        call: Callable[[], T],
        *,
        after_view: bool = False,
        on_unknown: Callable[[], None] | None = None,
    ) -> T | None:
        """Call the store; `on_unknown` is called where it may have acted without answering.

        Where it does not answer, it returns after the view the part that some servers have
        answered, or None; before it, None for a view that runs unguarded, or StoreUnavailable is
        raised.
        """
        try:
            answer = self._timed(operation, call) if self.instruments else call()
        except StoreError as error:
            self._report(claim, operation, error, after_view=after_view)
            known: T | None = error.answers  # type: ignore[assignment]  # the same type as `call`'s
            if after_view:
                return known
            if on_unknown is not None and error.sent:
                on_unknown()
            if self.rejects(claim) and not claim.observes:
                raise StoreUnavailable from error
            return None
        except Exception as error:
            clear_locals(error)
            raise
        if self._failing_since is not None and operation != "begin":  # which may send nothing
            self._log_recovery()
        return answer

    def rejects(self, claim: Claim) -> bool:
        return (claim.on_store_error or self._default) == "reject"

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
        for instrument in self.instruments:
            try:
                pass_on(instrument)
            except Exception:
                _logger.exception("An instrument failed.")

    def _report(
        self, claim: Claim, operation: str, error: StoreError, *, after_view: bool
    ) -> None:
        clear_locals(error)
        rejects = self.rejects(claim)
        is_counted = not after_view and (rejects or operation in _RUN_VIEWS)
        is_counted = is_counted and not claim.observes and _meets_outage_first()
        now, kind = self._clock(), error.kind
        with self._lock:
            if self._failing_since is None:
                self._failing_since, self._has_warned = now, False
            self._failed_at = now
            self._refused += is_counted and rejects
            self._unguarded += is_counted and not rejects
            is_due = now >= self._next_line_at.get(kind, now)
            withheld, self._withheld = self._withheld, self._withheld + 1
            if is_due:
                self._next_line_at[kind], self._has_warned = now + LOG_EVERY, True
                self._withheld = 0
        if is_due:
            consequence = "guarded requests get 503" if rejects else "guarded views run unguarded"
            _logger.warning(
                "Flask-Idempotence: the store does not answer; %s until it does. %s "
                "(operation=%s %s)%s",
                "guards observe nothing" if claim.observes else consequence,
                error.remedy,
                operation,
                kind,
                f" {withheld} more times since the last such line." if withheld else "",
            )
        claim.emit(store_failed, operation=operation, error=error)

    def _log_recovery(self) -> None:
        """Note the end of an outage, with a line if its beginning had one."""
        now = self._clock()
        with self._lock:
            since, last = self._failing_since, self._failed_at
            refused, unguarded = self._refused, self._unguarded
            if since is None:
                return
            self._failing_since = None
            if not self._has_warned:  # the next lines count it
                return
            self._refused = self._unguarded = self._withheld = 0
        _logger.warning(
            "Flask-Idempotence: the store answers again, %.1f seconds after its first failure and "
            "%.1f after its last; requests refused: %d, run unguarded: %d.",
            now - since,
            now - last,
            refused,
            unguarded,
        )


def _meets_outage_first() -> bool:
    """Whether a request meets the outage at its first guard: nested ones count as one."""
    if not has_request_context():
        return True
    state = state_of(current_request())
    is_first, state.has_met_outage = not state.has_met_outage, True
    return is_first


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
