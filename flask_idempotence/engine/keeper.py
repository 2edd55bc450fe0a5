"""The keeper: renews leases while views run, and retries unacknowledged settlements.

    time     view                       keeper
    0        claim, lease 1 s
    0.33     running                    renews: lease 30 s
    10.33    running                    renews: lease 30 s
    12       ends; no more renewals     (one under way is waited for)
             settles

A renewal without an answer is given up after a sixth of the lease and sent again, so that one lost
packet does not cost the lease. Without the wait at the end, a renewal could reach the store after
the settlement and revive a lease of 30 s that nobody holds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..stores.base import Outcome, Renewal
from ..stores.process import call_at_exit, call_in_children
from .claim import Hold
from .retry_queue import RETRY_EVERY, TIME_SLICE, PendingSettlement, RetryQueue

if TYPE_CHECKING:
    from ..config.settings import Config
    from ..stores.base import Store
    from .store_calls import FailurePolicy

_logger = logging.getLogger("flask_idempotence")

IDLE_TIMEOUT = 5.0
"""Seconds without work after which the thread ends; the next work starts another."""

EXIT_TIMEOUT = 2.0
"""Seconds that the exit of the process may take: for a tick under way, and for one more attempt at
each pending settlement."""

RENEWAL_TIMEOUT = 0.4
"""Seconds that a settlement waits for a renewal under way, before the keeper takes it over. With
the settlement's own deadline, it is the cost of an outage of the store at a request's end."""


class Keeper:
    """One daemon thread that renews the leases of running views.

    It starts with the first work and ends when idle; it survives every error of the store. After
    a fork, the child's begins empty. `lost` is called with a hold that has lost its claim, and
    `"renew"`.
    """

    def __init__(
        self,
        store: Store,
        policy: FailurePolicy,
        config: Config,
        clock: Callable[[], float],
        lost: Callable[[Hold, str], None],
    ) -> None:
        self._store = store
        self._policy = policy
        self._lease = config.lease
        self._max_hold = config.max_hold
        self._clock = clock
        self._lost = lost
        self._forget()
        call_in_children(self._forget)
        call_at_exit(self._shut_down)

    def _forget(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._held: set[Hold] = set()
        self._retry_queue = RetryQueue(self._policy, self._clock)
        self._deferred: deque[Callable[[], None]] = deque()
        self._renewing: frozenset[Hold] = frozenset()
        self._thread: threading.Thread | None = None
        self._wake_at = 0.0
        self._busy_at = 0.0
        self._pace = self._lease / 3
        self._is_ending = False

    def watch(self, hold: Hold) -> None:
        """Renew a hold's lease from now on."""
        with self._changed:
            self._held.add(hold)
            self._pace = min(self._pace, hold.lease / 3)
            thread = self._schedule(hold.renew_at)
        self._start(thread)

    def unwatch(self, hold: Hold, *, timeout: float = RENEWAL_TIMEOUT) -> bool:
        """Stop renewing a hold's lease.

        Returns:
            Whether no renewal is under way; false after `timeout` seconds of waiting for one.
        """
        with self._changed:
            self._held.discard(hold)
            if hold not in self._renewing:
                return True
            return self._changed.wait_for(lambda: hold not in self._renewing, timeout)

    def finish(self, settlement: PendingSettlement) -> None:
        """Retry a settlement until the store answers, or it no longer matters."""
        with self._changed:
            self._retry_queue.add(settlement)
            thread = self._schedule(self._retry_queue.due_at)
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
        """Do the work that is due: renew in one batch, then retry settlements."""
        self._run_deferred()
        now = self._clock()
        with self._changed:
            due = [hold for hold in self._held if hold.renew_at <= now]
            delay = now - min((hold.renew_at for hold in due), default=now)
            if due:
                # With those that are due soon: a thousand leases make few batches.
                due = [hold for hold in self._held if hold.renew_at <= now + hold.lease / 12]
            self._renewing = frozenset(due)
            for hold in due:  # before sending: settlements have to reckon with it from now on
                hold.renewed = True
        try:
            if due:
                self._policy.instrumentation.measure(lambda each: each.renewal_delay(delay))
                self._renew(due, now)
        finally:
            with self._changed:
                self._renewing = frozenset()
                self._changed.notify_all()
        if self._retry_queue:
            self._measure_retry_queue()
            self._retry_queue.work()
            self._measure_retry_queue()

    def _measure_retry_queue(self) -> None:
        # On this thread alone: two threads might report their counts in the wrong order.
        count = len(self._retry_queue)
        self._policy.instrumentation.measure(lambda each: each.retry_queue_length(count))

    def _run_deferred(self) -> None:
        stop_at = self._clock() + TIME_SLICE
        while self._deferred and self._clock() < stop_at:
            self._deferred.popleft()()

    def _renew(self, due: list[Hold], now: float) -> None:
        kept = [hold for hold in due if now < hold.granted_at + self._max_hold]
        for hold in set(due).difference(kept):
            _logger.error(
                "Held for longer than IDEMPOTENCE_MAX_HOLD, its lease is not renewed any more: %s",
                hold.attempt,
            )
            self._drop(hold)
        for hold, outcome in zip(kept, self._outcomes(kept, now), strict=True):
            if outcome is Outcome.OK:
                hold.begin_lease(self._lease, now)
            elif outcome is None:
                hold.renew_at = now + min(RETRY_EVERY, hold.lease / 6)
            elif hold.unacknowledged:  # the completion finds out whether it is lost
                hold.renew_at = now + hold.lease / 3
            elif not hold.settled:
                self._drop(hold)
                self._lost(hold, "renew")

    def _outcomes(self, holds: list[Hold], now: float) -> Sequence[Outcome | None]:
        if not holds:
            return []
        renewals = [Renewal(hold.key, hold.owner, self._lease) for hold in holds]
        # Two thirds of a lease are left, time for four attempts; one that is over has no hurry.
        leases = [hold.lease if now < hold.lease_end else self._lease for hold in holds]

        def renew() -> Sequence[Outcome | None]:
            with self._store.within(min(leases) / 6):
                return self._store.renew(renewals)

        try:
            outcomes = self._policy.tell(holds[0].attempt, "renew", renew)
        except Exception:
            _logger.exception("The store raised another error than StoreError.")
            if len(holds) == 1:
                return [None]
            # One of them causes it: the others must not lose their leases by it.
            return [outcome for hold in holds for outcome in self._outcomes([hold], now)]
        return [None] * len(holds) if outcomes is None else outcomes

    def _drop(self, hold: Hold) -> None:
        with self._changed:
            self._held.discard(hold)

    def _schedule(self, at: float) -> threading.Thread | None:
        """Have the thread awake at a time; return a new one, to be started without the lock."""
        if self._is_ending:
            return None
        if self._thread is not None:
            if at < self._wake_at:
                self._wake_at = at
                self._changed.notify_all()
            return None
        self._wake_at = at
        self._busy_at = self._clock()
        self._thread = threading.Thread(
            target=self._run, name="flask-idempotence-keeper", daemon=True
        )
        return self._thread

    def _start(self, thread: threading.Thread | None) -> None:
        # Never under the lock: where gevent has patched threads after the lock was made, starting
        # one switches to it, and it would wait for the lock for ever.
        if thread is None:
            return
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
                _logger.exception("The keeper failed, and goes on.")
                time.sleep(RETRY_EVERY)

    def _sleep(self) -> bool:
        """Sleep until work is due; return False to end the thread."""
        with self._changed:
            now = self._clock()
            if self._held or self._retry_queue or self._deferred:
                self._busy_at = now
            if self._is_ending or now > self._busy_at + IDLE_TIMEOUT:
                self._thread = None
                self._pace = self._lease / 3
                return False
            # At the pace of the shortest lease at least: a new hold of that length finds the
            # keeper awake early enough, and need not wake it.
            due = [now + self._pace, *(hold.renew_at for hold in self._held)]
            if self._retry_queue:
                due.append(self._retry_queue.due_at)
            if self._deferred:
                due.append(now)
            self._wake_at = min(due)
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
        while self._retry_queue and (left := end_at - time.monotonic()) > 0:
            with self._store.within(left):
                given_up += not self._retry_queue.try_last()
        given_up += len(self._retry_queue)
        if given_up:
            _logger.warning("Not settled when the process ended: %d claims.", given_up)
