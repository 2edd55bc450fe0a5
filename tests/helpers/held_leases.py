"""An application that holds many leases, and the processor time of its keeper."""

import time

from flask import Flask

from flask_idempotence import Idempotence
from flask_idempotence.engine.store_calls import Instrument
from flask_idempotence.stores.base import NO_FINGERPRINT
from helpers.keeper_harness import leased_claim


class Renewals(Instrument):
    """Notes how late the keeper was at worst."""

    latest = 0.0

    def renewal_delay(self, seconds):
        self.latest = max(self.latest, seconds)


class HeldLeases:
    """Claims that an application's own keeper renews, made one after the other as by requests."""

    def __init__(self, url, *, lease):
        self.app = Flask("keeper")
        self.app.config.update(
            SECRET_KEY="for the leases",
            IDEMPOTENCE_STORAGE_URI=url,
            IDEMPOTENCE_STORAGE_OPTIONS={"deadline": 1.0},
            IDEMPOTENCE_LEASE=lease,
        )
        Idempotence(self.app)
        self.engine = self.app.extensions["idempotence"].engine
        self.renewals = Renewals()
        self.engine.policy.instruments += (self.renewals,)
        self.holds = []

    def hold(self, count, *, over):
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + over * number / count - time.monotonic()))
            self.claim(f"held:{number}")

    def claim(self, key):
        lease = self.engine.config.lease
        claim = leased_claim(self.app, lease, self.engine.now(), key)
        self.engine.store.claim(key, claim.owner, NO_FINGERPRINT, lease, 0)
        self.engine.keeper.watch(claim)
        self.holds.append(claim)

    def share(self, seconds):
        """Return the share of one core that the keeper takes over so many seconds."""
        clock = time.pthread_getcpuclockid(self.engine.keeper._thread.ident)
        before, began = time.clock_gettime(clock), time.monotonic()
        time.sleep(seconds)
        return (time.clock_gettime(clock) - before) / (time.monotonic() - began)

    @property
    def lost(self):
        return sum(hold.lost for hold in self.holds)

    def end(self):
        for hold in self.holds:
            self.engine.keeper.unwatch(hold)
