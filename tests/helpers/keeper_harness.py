"""A keeper under observation."""

import os

from flask_idempotence.config.settings import Config
from flask_idempotence.engine.guard import Claim
from flask_idempotence.engine.keeper import Keeper
from flask_idempotence.engine.store_calls import StoreCalls
from flask_idempotence.engine.values import Operation
from flask_idempotence.guards.lock import LockGuard
from flask_idempotence.testing import FakeClock
from helpers.apps import make_app


def leased_claim(app, lease, now, key="k"):
    claim = Claim(app, LockGuard(), "view")
    claim.key = key
    claim.operation = Operation(b"", lease=lease)
    return claim.grant(os.urandom(16), now)


class KeeperHarness:
    def __init__(self, store, *, clock=None, **settings):
        self.store = store
        self.clock = clock or FakeClock()
        self.app = make_app()
        config = Config(**settings)
        self.keeper = Keeper(store, StoreCalls(config, self.clock), config, self.clock)
        self.keeper._schedule = lambda at: None  # no thread: the test ticks

    def hold(self, key="k", *, lease=1.0):
        claim = leased_claim(self.app, lease, self.clock(), key)
        self.keeper.watch(claim)
        return claim

    def pass_time(self, seconds, step=0.1):
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.keeper.tick()
