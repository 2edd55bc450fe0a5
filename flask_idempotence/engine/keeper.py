"""The keeper: renews leases while views run, and finishes what could not be settled.

    time     the view                   the keeper
    0        claim, lease 1 s
    0.33     still running              renews: lease 30 s
    10.33    still running              renews: lease 30 s
    12       done: stop renewing        (a renewal under way is waited for)
             settle

A renewal that is not answered is given up after a sixth of the lease and sent again, so that one
lost packet does not cost the lease.

Without the waiting, a renewal that is under way while the view settles could arrive after the
settlement and bring a lease of 30 s back to life that nobody holds.
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
from .retry_queue import RETRY_EVERY, WORK_FOR, Backlog, Unsettled

if TYPE_CHECKING:
    from ..config.settings import Config
    from ..stores.base import Store
    from .store_calls import FailurePolicy

_logger = logging.getLogger("flask_idempotence")

LINGER = 5.0
"""Seconds without work after which the thread ends; the next work starts another."""

END_WITHIN = 2.0
"""Seconds for which the end of the process may be put off: for a tick that is under way, and for
another attempt at what is not settled."""

QUIET_WITHIN = 0.4
"""Seconds that a settlement waits for a renewal under way, before it is left to the keeper. With
the settlement's own deadline it is what a store that is away costs a request at its end."""


class Keeper:
    """One daemon thread that renews the leases of views that are still running.

    It starts with the first work and ends when there has been none for a while; it survives
    everything the store does, and a fork: the child begins with nothing to keep.

    Args:
        store: where the leases are.
        policy: what carries out the operations.
        config: for the length of a renewed lease and the longest hold.
        clock: returns seconds that never go back.
        lost: is told of a hold whose claim turned out to be lost, and when.
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
        call_at_exit(self.wind_up)

    def _forget(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._held: set[Hold] = set()
        self._backlog = Backlog(self._policy, self._clock)
        self._deferred: deque[Callable[[], None]] = deque()
        self._renewing: frozenset[Hold] = frozenset()
        self._thread: threading.Thread | None = None
        self._wake_at = 0.0
        self._pace = self._lease / 3
        self._busy_at = 0.0
        self._is_ending = False

    def watch(self, hold: Hold) -> None:
        """Renew a hold's lease from now on."""
        with self._changed:
            self._held.add(hold)
            self._pace = min(self._pace, hold.lease / 3)
            thread = self._be_awake_at(hold.renew_at)
        self._start(thread)

    def unwatch(self, hold: Hold, *, within: float = QUIET_WITHIN) -> bool:
        """Stop renewing a hold's lease.

        Returns:
            Whether no renewal is under way any more; false after `within` seconds of waiting.
        """
        with self._changed:
            self._held.discard(hold)
            if hold not in self._renewing:
                return True
            return self._changed.wait_for(lambda: hold not in self._renewing, within)

    def finish(self, unsettled: Unsettled) -> None:
        """Go on trying a settlement until the store answers, or it no longer matters."""
        with self._changed:
            self._backlog.add(unsettled)
            thread = self._be_awake_at(self._backlog.due_at)
        self._start(thread)

    def defer(self, call: Callable[[], None]) -> None:
        """Have something called soon; for the garbage collector, which may hold any lock.

        Nothing here waits for a lock: the thread that collects may be the one that holds it.
        """
        self._deferred.append(call)
        if self._changed.acquire(blocking=False):
            try:
                thread = self._be_awake_at(self._clock())
            finally:
                self._changed.release()
            self._start(thread)

    def tick(self) -> None:
        """Do what is due: renew in one batch, then settle."""
        self._call_deferred()
        now = self._clock()
        with self._changed:
            due = [hold for hold in self._held if hold.renew_at <= now]
            late = now - min((hold.renew_at for hold in due), default=now)
            if due:
                # What is due soon is renewed along, so that a thousand leases make few batches.
                due = [hold for hold in self._held if hold.renew_at <= now + hold.lease / 12]
            self._renewing = frozenset(due)
            for hold in due:  # whoever settles from now on has to reckon with it
                hold.renewed = True
        try:
            if due:
                self._policy.observers.keeper_late(late)
                self._renew(due, now)
        finally:
            with self._changed:
                self._renewing = frozenset()
                self._changed.notify_all()
        self._work_off()

    def _work_off(self) -> None:
        if not self._backlog:
            return
        # Told by this thread alone: two of them might tell their numbers in the wrong order.
        self._policy.observers.pending(len(self._backlog))
        self._backlog.work()
        self._policy.observers.pending(len(self._backlog))

    def wind_up(self) -> None:
        """End the thread and try once more what is not settled; the process is about to end.

        A daemon thread that the interpreter has to stop may be in the middle of a line of the log
        and keep its lock.
        """
        end_at = time.monotonic() + END_WITHIN
        with self._changed:
            self._is_ending = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread.is_alive():
            thread.join(END_WITHIN)
            if thread.is_alive():
                return
        self._call_deferred()
        given_up = 0
        while self._backlog and (left := end_at - time.monotonic()) > 0:
            with self._store.time_limit(left):
                given_up += not self._backlog.try_last()
        given_up += len(self._backlog)
        if given_up:
            _logger.warning("Not settled when the process ended: %d claims.", given_up)

    def _call_deferred(self) -> None:
        stop_at = self._clock() + WORK_FOR
        while self._deferred and self._clock() < stop_at:
            self._deferred.popleft()()

    def _renew(self, due: list[Hold], now: float) -> None:
        kept = [hold for hold in due if now < hold.granted_at + self._max_hold]
        for hold in set(due).difference(kept):
            _logger.error("What took too long is no longer protected: %s", hold.attempt)
            self._drop(hold)
        if not kept:
            return
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
        renewals = [Renewal(hold.key, hold.owner, self._lease) for hold in holds]
        patience = self._patience(holds, now)

        def renew() -> Sequence[Outcome | None]:
            with self._store.time_limit(patience):
                return self._store.renew(renewals)

        try:
            outcomes = self._policy.tell(holds[0].attempt, "renew", renew)
        except Exception:
            _logger.exception(
                "The store failed otherwise than by a StoreError: %s", holds[0].attempt
            )
            if len(holds) == 1:
                return [None]
            # Which one it was is unknown: the others must not go without a lease.
            return [outcome for hold in holds for outcome in self._outcomes([hold], now)]
        return [None] * len(holds) if outcomes is None else outcomes

    def _patience(self, holds: list[Hold], now: float) -> float:
        # From the first third of the lease on, there is time for four attempts. Where it is over
        # already, haste is of no use.
        return min(hold.lease if now < hold.lease_end else self._lease for hold in holds) / 6

    def _drop(self, hold: Hold) -> None:
        with self._changed:
            self._held.discard(hold)

    def _be_awake_at(self, time: float) -> threading.Thread | None:
        if self._is_ending:
            return None
        if self._thread is not None:
            if time < self._wake_at:
                self._wake_at = time
                self._changed.notify_all()
            return None
        self._wake_at = time
        self._busy_at = self._clock()
        self._thread = threading.Thread(
            target=self._run, name="flask-idempotence-keeper", daemon=True
        )
        return self._thread

    def _start(self, thread: threading.Thread | None) -> None:
        # Never while the lock is held: where gevent has patched threads after the lock was made,
        # starting one switches to it, and it would wait for the lock without letting us go on.
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
        with self._changed:
            now = self._clock()
            if self._is_ending:
                self._thread = None
                return False
            if self._held or self._backlog or self._deferred:
                self._busy_at = now
            elif now > self._busy_at + LINGER:
                self._thread = None
                self._pace = self._lease / 3
                return False
            # Awake at least at the pace of the shortest lease: whoever adds a hold of that length
            # finds the keeper awake early enough, and need not wake it.
            due = [hold.renew_at for hold in self._held]
            if self._backlog:
                due.append(self._backlog.due_at)
            if self._deferred:
                due.append(now)
            self._wake_at = min([*due, now + self._pace])
            self._changed.wait(max(0.0, self._wake_at - now))
            return True
