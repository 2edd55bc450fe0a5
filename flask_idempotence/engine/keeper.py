"""The keeper: renews leases while views run, and retries unacknowledged settlements.

    time     view                       keeper
    0        claim, lease 1 s
    0.33     running                    renews: lease 30 s
    10.33    running                    renews: lease 30 s
    12       ends; no more renewals     (one under way is waited for)
             settles

A renewal without an answer is given up after a sixth of the lease and sent again, so that one lost
packet does not cost the lease. Without the wait at the end, a renewal could reach the store after
the settlement and revive a lease of 30 s without an owner.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass

from ..config.settings import Config
from ..response.refusals import LeaseLost, Refusal
from ..stores.base import Outcome, Renewal, Store
from ..stores.process import WeakObjects, call_at_exit, call_in_children, threads_stand_still
from .guard import Claim
from .store_calls import StoreCalls

_logger = logging.getLogger("flask_idempotence")

# Seconds without work after which the thread ends; the next work starts another.
IDLE_TIMEOUT = 5.0

# Seconds that the exit of the process may take: for a tick under way, and for one more attempt at
# each pending settlement.
EXIT_TIMEOUT = 2.0

# Seconds that a settlement waits for a renewal under way, before the keeper takes it over. With
# the settlement's own deadline, it is the cost of an outage of the store at a request's end.
RENEWAL_TIMEOUT = 0.4

RETRY_EVERY = 0.5  # seconds between two attempts at a settlement

# Failures after which the rest of a round waits for the next. With fewer, settlements that are
# always refused would block the others; with more, a store in an outage would be flooded.
MAX_FAILURES = 20

TIME_SLICE = 0.1  # seconds of work between two rounds of renewals

# The keepers of this process, for a test that moves the clock.
KEEPERS: WeakObjects[Keeper] = WeakObjects()

NO_THREADS = (
    "uWSGI runs without enable-threads: between requests and while a response is sent, no lease "
    "is renewed and no settlement is tried again. Set enable-threads = true."
)


@dataclass(eq=False, repr=False, slots=True)
class PendingSettlement:
    """A settlement that the store has not acknowledged."""

    claim: Claim
    operation: str
    call: Callable[[], Outcome]
    until: float  # when it no longer matters, on the engine's clock
    ended: Callable[[Outcome | None], None] | None = None  # None: it was given up


class Keeper:
    """One daemon thread that renews the leases of running views.

    It starts with the first work and ends when idle; it survives every error of the store. After
    a fork, the child's begins empty.
    """

    def __init__(
        self, store: Store, store_calls: StoreCalls, config: Config, clock: Callable[[], float]
    ) -> None:
        self.store = store
        self.store_calls = store_calls
        self._config = config
        self._clock = clock
        self._forget()
        call_in_children(self._forget)
        call_at_exit(self._shut_down)
        KEEPERS.add(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._held: set[Claim] = set()
        # In the order of their next attempt. Only the keeper's thread works on it; any thread may
        # add to it under the lock.
        self._retry_queue: deque[PendingSettlement] = deque()
        self._retry_at = 0.0
        self._deferred: deque[Callable[[], None]] = deque()
        self._renewing: frozenset[Claim] = frozenset()
        self._thread: threading.Thread | None = None
        self._wake_at = 0.0
        self._busy_at = 0.0
        self._pace = self._config.lease / 3
        self._is_ending = False
        self._tick_lock = threading.Lock()
        self._has_warned = False

    def watch(self, claim: Claim) -> None:
        with self._lock:  # directly: the methods of a condition are Python's own, and slower
            self._held.add(claim)
            self._pace = min(self._pace, claim.lease / 3)
            if self._thread is not None and claim.renew_at >= self._wake_at:
                return
            thread = self._schedule(claim.renew_at)
        self._start(thread)

    def unwatch(self, claim: Claim, *, timeout: float = RENEWAL_TIMEOUT) -> bool:
        """Stop renewing; whether no renewal is under way, after `timeout` seconds at most."""
        with self._lock:
            self._held.discard(claim)
            if claim not in self._renewing:
                return True
            return self._changed.wait_for(lambda: claim not in self._renewing, timeout)

    def retry(self, settlement: PendingSettlement) -> None:
        """Retry a settlement until the store answers, or it no longer matters."""
        with self._changed:
            self._retry_queue.append(settlement)
            if len(self._retry_queue) == 1:
                self._retry_at = self._clock() + RETRY_EVERY
            thread = self._schedule(self._retry_at)
        self._start(thread)

    def defer(self, call: Callable[[], None]) -> None:
        """Run a callback soon, on the keeper's thread; for finalizers.

        It never waits for a lock: the garbage collector may run on the thread that holds it.
        """
        self._deferred.append(call)
        if self._changed.acquire(blocking=False):
            try:
                thread = self._schedule(self._clock())
            finally:
                self._changed.release()
            self._start(thread)

    def tick(self) -> None:
        with self._tick_lock:
            self._run_deferred()
            self._renew_due()
            if self._retry_queue:
                self._measure_retry_queue()
                self._retry_due()
                self._measure_retry_queue()

    def _renew_due(self) -> None:
        now = self._clock()
        with self._changed:
            due = [claim for claim in self._held if claim.renew_at <= now]
            delay = now - min((claim.renew_at for claim in due), default=now)
            if due:
                # With those that are due soon: a thousand leases make few batches.
                due = [claim for claim in self._held if claim.renew_at <= now + claim.lease / 12]
            self._renewing = frozenset(due)
            for claim in due:  # before sending: settlements must count with it from now on
                claim.was_renewed = True
        try:
            if due:
                self.store_calls.measure(lambda each: each.renewal_delay(delay))
                self._renew(due, now)
        finally:
            with self._changed:
                self._renewing = frozenset()
                self._changed.notify_all()

    def due_at(self) -> float:
        """Return the time of the next renewal or retry; infinity where there is none."""
        with self._changed:
            return self._due_at()

    def _due_at(self) -> float:
        due = min((claim.renew_at for claim in self._held), default=float("inf"))
        return min(due, self._retry_at) if self._retry_queue else due

    def _measure_retry_queue(self) -> None:
        # On this thread alone: two threads might report their counts in the wrong order.
        count = len(self._retry_queue)
        self.store_calls.measure(lambda each: each.retry_queue_length(count))

    def _retry_due(self) -> None:
        """Try settlements for one time slice: leases do not wait until all are settled."""
        queue, stop_at, failures = self._retry_queue, self._clock() + TIME_SLICE, 0
        for _ in range(len(queue)):
            if failures == MAX_FAILURES or not self._retry_at <= self._clock() < stop_at:
                break
            settlement = queue.popleft()
            if not self._try(settlement):
                queue.append(settlement)  # last: the store may refuse only this one
                failures += 1
        if failures:
            self._retry_at = self._clock() + RETRY_EVERY

    def _try(self, settlement: PendingSettlement) -> bool:
        """Try a settlement; whether it has ended, also by an error of another kind or too late."""
        claim, outcome = settlement.claim, None
        if self._clock() >= settlement.until:
            _logger.warning("A settlement came too late: %s", claim)
        else:
            try:
                outcome = self.store_calls.call(
                    claim, settlement.operation, settlement.call, after_view=True
                )
                if outcome is None:
                    return False
            except Exception:
                _logger.exception("A settlement failed: %s", claim)
        if settlement.ended is not None:
            settlement.ended(outcome)
        return True

    def _run_deferred(self) -> None:
        stop_at = self._clock() + TIME_SLICE
        while self._deferred and self._clock() < stop_at:
            self._deferred.popleft()()

    def _renew(self, due: list[Claim], now: float) -> None:
        held = [claim for claim in due if now < claim.granted_at + self._config.max_hold]
        for claim in set(due).difference(held):
            _logger.error(
                "A claim exceeds IDEMPOTENCE_MAX_HOLD; its lease is no longer renewed: %s",
                claim,
            )
            self.unwatch(claim, timeout=0)
        for claim, outcome in zip(held, self._outcomes(held, now), strict=True):
            if outcome is Outcome.OK:
                claim.extend(self._renewed(claim), now)
            elif outcome is None:
                claim.renew_at = now + min(RETRY_EVERY, claim.lease / 6)
            elif claim.unacknowledged:  # the completion finds out whether it is lost
                claim.renew_at = now + claim.lease / 3
            elif not claim.settled:
                self.unwatch(claim, timeout=0)
                claim.lose("renew", now)

    def _outcomes(self, claims: list[Claim], now: float) -> Sequence[Outcome | None]:
        if not claims:
            return []
        renewals = [self._renewal(claim) for claim in claims]
        # Two thirds of a lease are left, time for four attempts; one that has ended is not urgent.
        leases = [
            claim.lease if now < claim.leased_at + claim.lease else self._renewed(claim)
            for claim in claims
        ]

        def renew() -> Sequence[Outcome | None]:
            with self.store.time_limit(min(leases) / 6):
                return self.store.renew(renewals)

        try:
            outcomes = self.store_calls.call(claims[0], "renew", renew, after_view=True)
        except Exception:
            _logger.exception("The store raised another error than StoreError.")
            if len(claims) == 1:
                return [None]
            # One of them causes the error: the others must not lose their leases.
            return [outcome for claim in claims for outcome in self._outcomes([claim], now)]
        return [None] * len(claims) if outcomes is None else outcomes

    def ensure_held(self, claim: Claim) -> None:
        try:
            if claim.settled:  # after the response: the claim has ended
                raise LeaseLost
            now = self._clock()
            claim.was_renewed = True
            outcomes = self.store_calls.call(
                claim, "renew", lambda: self.store.renew([self._renewal(claim)])
            )
            if outcomes is None:
                return
            if outcomes[0] is Outcome.STALE:
                claim.lose("renew", now)
                raise LeaseLost
            claim.extend(self._renewed(claim), now)
        except Refusal as refusal:
            refusal.apply(self._config)
            raise

    def _renewed(self, claim: Claim) -> float:
        return claim.operation.renewal or self._config.lease

    def _renewal(self, claim: Claim) -> Renewal:
        return Renewal(claim.key, claim.owner, self._renewed(claim))

    def _schedule(self, at: float) -> threading.Thread | None:
        """Wake the thread at a time; return a new one, to be started without the lock."""
        if self._is_ending:
            return None
        if self._thread is not None:
            if at < self._wake_at:
                self._wake_at = at
                self._changed.notify_all()
            return None
        self._wake_at = at
        self._busy_at = self._clock()
        # Without the context of the request that starts it, which some threads inherit: its span
        # and its request would be those of all later renewals.
        self._thread = threading.Thread(
            target=Context().run, args=(self._run,), name="flask-idempotence-keeper", daemon=True
        )
        return self._thread

    def _start(self, thread: threading.Thread | None) -> None:
        # Never under the lock: where gevent has patched threads after the lock was made, starting
        # one switches to it, and it would wait for the lock for ever.
        if thread is None:
            return
        if threads_stand_still() and not self._has_warned:
            self._has_warned = True
            _logger.warning(NO_THREADS)
        try:
            thread.start()
        except RuntimeError:  # out of threads: the next work tries again
            _logger.exception("The keeper could not be started: leases are not being renewed.")
            self._thread = None

    def _run(self) -> None:
        while self._sleep():
            try:
                self.tick()
            except Exception:
                _logger.exception("The keeper failed, and continues.")
                time.sleep(RETRY_EVERY)

    def _sleep(self) -> bool:
        """Sleep until work is due; return False to end the thread."""
        with self._changed:
            now = self._clock()
            if self._held or self._retry_queue or self._deferred:
                self._busy_at = now
            if self._is_ending or now > self._busy_at + IDLE_TIMEOUT:
                self._thread = None
                self._pace = self._config.lease / 3
                return False
            # At the pace of the shortest lease at least: a new claim of that length finds the
            # keeper awake early enough, and need not wake it.
            self._wake_at = now if self._deferred else min(now + self._pace, self._due_at())
            self._changed.wait(max(0.0, self._wake_at - now))
            return True

    def _shut_down(self) -> None:
        """End the thread, and try pending settlements once more.

        A daemon thread that the interpreter stops may be writing a log line and keep its lock.
        """
        end_at = time.monotonic() + EXIT_TIMEOUT
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join(EXIT_TIMEOUT)
            if thread.is_alive():
                return
        self._run_deferred()
        given_up = 0
        for settlement in sorted(self._retry_queue, key=lambda each: each.operation != "complete"):
            left = end_at - time.monotonic()
            with self.store.time_limit(max(0.0, left)):
                given_up += left <= 0 or not self._try(settlement)
        if given_up:
            _logger.warning("Not settled when the process ended: %d claims.", given_up)
