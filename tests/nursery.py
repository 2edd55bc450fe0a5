"""A keeper under observation."""

import os

from apps import make_app

from flask_idempotence.config.settings import Config
from flask_idempotence.engine.claim import Attempt, Hold
from flask_idempotence.engine.keeper import Keeper
from flask_idempotence.engine.store_calls import FailurePolicy
from flask_idempotence.testing import FakeClock


def leased_hold(app, lease, now, key="k"):
    """Return a hold with a lease that began now."""
    attempt = Attempt(app, "lock", "view")
    attempt.key = key
    hold = Hold(None, None, attempt, key)
    hold.owner = os.urandom(16)
    hold.granted_at = now
    hold.begin_lease(lease, now)
    return hold


class Nursery:
    """A keeper whose ticks the test makes itself, on a clock of the test's."""

    def __init__(self, store, *, clock=None, **settings):
        self.store = store
        self.clock = clock or FakeClock()
        self.app = make_app()
        config = Config(**settings)
        settling = self.app.extensions["idempotence"].engine.settling
        self.keeper = Keeper(store, FailurePolicy(config), config, self.clock, settling.lost)
        self.keeper._schedule = lambda at: None  # no thread: the test ticks

    def hold(self, key="k", *, lease=1.0):
        hold = leased_hold(self.app, lease, self.clock(), key)
        self.keeper.watch(hold)
        return hold

    def pass_time(self, seconds, step=0.1):
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.keeper.tick()
