"""How long a renewal may take, and what is made of half an answer."""

import os
import time

import pytest
from helpers.keeper_harness import KeeperHarness
from helpers.servers.faults import Proxy, SilentServer
from helpers.servers.processes import until
from helpers.store_assertions import claim

from flask_idempotence import MemoryStore, StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Running
from flask_idempotence.stores.process import OPEN_AFTER
from flask_idempotence.testing import record_signals

DEADLINE = 1.0


def timed(call):
    started = time.monotonic()
    call()
    return time.monotonic() - started


def failure(call):
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value


@pytest.fixture
def silent():
    with SilentServer() as server:
        yield KeeperHarness(open_store(server.url, {"deadline": DEADLINE}), lease=60)


LEASES = pytest.mark.parametrize(
    ("leases", "passed", "limit"),
    [
        ([1.2], 0.4, 0.2),
        ([60], 20, 10),
        ([3.6, 1.2], 1.2 - 0.01, 0.2),  # the shortest of a batch counts
        ([3.6, 1.2], 1.2, 0.6),  # one that is over makes no haste
    ],
)


class TestTime:
    @LEASES
    def test_a_renewal_asks_for_an_answer_within_a_sixth_of_the_lease(
        self, silent, monkeypatch, leases, passed, limit
    ):
        limits, time_limit = [], silent.store.time_limit
        monkeypatch.setattr(
            silent.store, "time_limit", lambda seconds: limits.append(seconds) or time_limit(0)
        )
        for lease in leases:
            silent.hold(f"of {lease} s", lease=lease)
        silent.clock.advance(passed)
        silent.keeper.tick()
        assert limits == [pytest.approx(limit)]

    @pytest.mark.timed
    @LEASES
    def test_a_renewal_has_a_sixth_of_the_lease_to_be_answered(
        self, silent, leases, passed, limit
    ):
        for lease in leases:
            silent.hold(f"of {lease} s", lease=lease)
        silent.clock.advance(passed)
        least = min(limit, DEADLINE)  # never more than the store's own
        assert least - 0.1 < timed(silent.keeper.tick) < least + 0.6

    def test_haste_ends_with_the_renewal(self, silent):
        silent.hold(lease=1.2)
        silent.clock.advance(0.4)
        silent.keeper.tick()
        assert timed(lambda: failure(silent.store.ping)) > DEADLINE - 0.1

    def test_haste_says_nothing_about_the_server(self, silent):
        """Three renewals in vain are half a second; for that nobody else is turned away."""
        with silent.store.time_limit(0.2):
            for _ in range(OPEN_AFTER + 1):
                failure(silent.store.ping)
        assert "circuit breaker" not in str(failure(silent.store.ping))

    @pytest.mark.timed
    def test_a_renewal_that_went_astray_is_sent_again_while_the_lease_lasts(
        self, redis_server, redis_url
    ):
        with Proxy(redis_server) as proxy:
            harness = KeeperHarness(open_store(proxy.url, {"deadline": DEADLINE}), lease=60)
            harness.keeper._clock = time.monotonic
            hold = harness.hold(lease=1.5)
            hold.granted_at = time.monotonic()
            hold.extend(1.5, hold.granted_at)
            assert harness.store.claim("k", hold.owner, NO_FINGERPRINT, 1.5, 0) == Claimed()
            proxy.black_hole = True  # what is sent now never arrives
            assert until(lambda: harness.keeper.tick() or hold.was_renewed)
            proxy.black_hole = False
            assert until(lambda: harness.keeper.tick() or hold.lease == 60, 0.6)
            assert isinstance(claim(harness.store), Running)
            assert redis_server.client().pttl("k") > 50_000

    @pytest.mark.timed
    def test_a_server_that_is_left_alone_gets_a_renewal_in_haste_all_the_same(self, redis_server):
        with Proxy(redis_server) as proxy:
            harness = KeeperHarness(open_store(proxy.url, {"deadline": 0.3}), lease=60)
            hold = harness.hold(lease=1.2)
            harness.store.claim("k", hold.owner, NO_FINGERPRINT, 1.2, 0)
            proxy.black_hole = True
            for _ in range(OPEN_AFTER):
                failure(harness.store.ping)
            proxy.black_hole = False
            assert "circuit breaker" in str(failure(harness.store.ping))
            harness.clock.advance(0.4)
            harness.keeper.tick()
            assert redis_server.client().pttl("k") > 50_000
            harness.store.ping()  # and now all others know as well


class Halved(MemoryStore):
    """A store of two servers, one of which can be away: that of the keys in `away`."""

    away = frozenset()

    def renew(self, renewals):
        outcomes = super().renew([each for each in renewals if each.key not in self.away])
        if not self.away:
            return outcomes
        error = StoreError("a server is away")
        error.answers = [None if each.key in self.away else outcomes.pop(0) for each in renewals]
        raise error


class TestHalfAnAnswer:
    @pytest.fixture
    def harness(self):
        harness = KeeperHarness(Halved(), lease=60)
        for key in ("here", "there", "gone"):
            hold = harness.hold(key, lease=6)
            harness.store.claim(key, hold.owner, NO_FINGERPRINT, 6, 0)
            setattr(harness, key, hold)
        harness.store.remove("gone")
        harness.store.claim("gone", os.urandom(16), NO_FINGERPRINT, 6, 0)
        harness.store.away = {"there"}
        return harness

    def test_each_lease_goes_by_what_its_own_server_says(self, harness):
        with record_signals(harness.app) as signals:
            harness.pass_time(2, step=2)
        assert [harness.here.lease, harness.there.lease] == [60, 6]
        assert harness.gone.lost
        assert not harness.there.lost
        assert sorted(signals.names) == ["lease_lost", "store_failed"]

    def test_only_what_was_not_answered_is_asked_again_soon(self, harness):
        harness.pass_time(2, step=2)
        harness.store.away = frozenset()
        asked = []
        renew = harness.store.renew
        harness.store.renew = lambda batch: (
            asked.append([one.key for one in batch]) or renew(batch)
        )
        harness.pass_time(1)
        assert asked == [["there"]]
        assert harness.there.lease == 60
