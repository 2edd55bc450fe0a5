"""Ten thousand leases at once in the keeper of one process."""

import threading
import time

import psutil
from helpers.apps import make_app
from helpers.keeper_harness import leased_claim

from flask_idempotence.engine.store_calls import Instrument
from flask_idempotence.stores.base import NO_FINGERPRINT

from .stores import open_server

BATCH = 1000


class Renewals(Instrument):
    """Notes how late the keeper was at worst."""

    latest = 0.0

    def renewal_delay(self, seconds):
        self.latest = max(self.latest, seconds)


class HeldLeases:
    """Claims that an application's own keeper renews, and looks at them from the store's side."""

    def __init__(self, url, lease):
        self._app = make_app(IDEMPOTENCE_STORAGE_URI=url, IDEMPOTENCE_LEASE=lease)
        self._engine = self._app.extensions["idempotence"].engine
        self.renewals = Renewals()
        self._engine.policy.instruments += (self.renewals,)
        self._lease, self.holds, self._marks = lease, [], {}
        self.missing = self.threads = 0
        self.shortest, self.slowest, self.looks = lease, 0.0, 0

    def hold(self, count):
        """Make claims one after the other over a third of a lease, as by requests."""
        began = time.monotonic()
        for number in range(count):
            due = began + self._lease / 3 * number / count
            time.sleep(max(0.0, due - time.monotonic()))
            self.holds.append(self._claim(f"held:{number}"))

    def _claim(self, key):
        claim = leased_claim(self._app, self._lease, self._engine.now(), key)
        self._engine.store.claim(key, claim.owner, NO_FINGERPRINT, self._lease, 0)
        self._engine.keeper.watch(claim)
        return claim

    def look(self, seconds):
        """Look at all leases again and again; return the keeper's share of a core meanwhile."""
        clock = time.pthread_getcpuclockid(self._engine.keeper._thread.ident)
        before, began = time.clock_gettime(clock), time.monotonic()
        while time.monotonic() < began + seconds:
            self._look_once()
            time.sleep(1)
        return (time.clock_gettime(clock) - before) / (time.monotonic() - began)

    def _look_once(self):
        """Claim something else, and count the leases that the store does not have."""
        began = time.monotonic()
        other = self._claim(f"other:{self.looks}")
        self.slowest = max(self.slowest, time.monotonic() - began)
        self._engine.keeper.unwatch(other)
        self.looks += 1
        self.threads = max(self.threads, threading.active_count())
        for first in range(0, len(self.holds), BATCH):
            holds = self.holds[first : first + BATCH]
            found = self._engine.store.peek_all([hold.slot.key for hold in holds])
            for hold, entry in zip(holds, found, strict=True):
                # The mark is that of its first owner, as long as it was never lost.
                mark = entry and self._marks.setdefault(hold, entry.mark)
                if entry is None or not entry.lease or entry.mark != mark:
                    self.missing += 1
                else:
                    self.shortest = min(self.shortest, entry.lease)

    def end(self):
        for hold in self.holds:
            self._engine.keeper.unwatch(hold)


def play(kind, count, directory, lease, seconds):
    """Hold so many leases, and look at each of them in the store again and again."""
    process = psutil.Process()
    with open_server(kind, directory) as server:
        held = HeldLeases(server.url, lease)
        threads, memory = threading.active_count(), process.memory_full_info().uss
        held.hold(count)
        grown = process.memory_full_info().uss - memory
        share = held.look(seconds)
        held.end()
    return {
        "lost": sum(hold.lost for hold in held.holds),
        "missing in the store": held.missing,
        "looks": held.looks,
        "left of a lease, at least": held.shortest,
        "latest renewal": held.renewals.latest,
        "threads that were started": held.threads - threads,
        "keeper's share of a core": share,
        "slowest claim of another key": held.slowest,
        "bytes of a lease": grown / count,
    }
