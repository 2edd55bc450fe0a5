"""One clock for all applications: `control_time`, and the fixture `idempotence_clock`."""

import threading
import time
from datetime import timedelta

import pytest
from helpers.apps import make_app
from helpers.every_store import storage_settings
from helpers.keeper_harness import KeeperHarness
from helpers.once_operations import elsewhere

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    MemoryStore,
    Running,
    idempotent,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.engine.engine import Engine
from flask_idempotence.engine.guard import Claim
from flask_idempotence.guards.lock import LockGuard
from flask_idempotence.request.tokens import Tokens
from flask_idempotence.response.records import Records
from flask_idempotence.stores import open_store
from flask_idempotence.testing import FakeClock, clear_store, control_time, token_for

PATIENCE = 5


class Shop:
    def __init__(self, **settings):
        self.idempotence = Idempotence()
        self.app = make_app(idempotence=self.idempotence, **settings)
        for name, guard in {
            "lock": no_repeat_submit(60),
            "key": idempotent(ttl=600),
            "token-guard": one_time_token(),
        }.items():
            self.app.add_url_rule(f"/{name}", name, guard(self.run), methods=["POST"])
        self.runs = 0

    def run(self):
        self.runs += 1
        return str(self.runs)

    def post(self, name, **headers):
        return self.app.test_client().post(f"/{name}", headers=headers)

    def sends(self, name, **headers):
        before = self.runs
        self.post(name, **headers)
        return self.runs > before

    def enter_lock(self, name):
        with self.app.app_context(), self.idempotence.lock(name):
            pass


of_the_module = Shop()


@pytest.fixture
def early_shop():
    return Shop()


class TestEveryApplicationFollows:
    @pytest.mark.parametrize("made", ["in the module", "before the clock", "in the test"])
    def test_whenever_it_was_made(self, made, early_shop, idempotence_clock):
        known = {"in the module": of_the_module, "before the clock": early_shop}
        shop = known.get(made) or Shop()
        assert shop.sends("lock")
        idempotence_clock.advance(59)
        assert not shop.sends("lock")
        idempotence_clock.advance(timedelta(seconds=1))
        assert shop.sends("lock")

    def test_with_its_keys_and_its_memory_store(self, idempotence_clock):
        pytest.importorskip("cryptography")  # whose records have a time of their own
        shop = Shop(IDEMPOTENCE_KEY_ENCRYPTION_KEYS=["A" * 43 + "="])
        key = {"Idempotency-Key": "order-1"}
        records = shop.app.extensions["idempotence"].engine.services.records
        assert shop.sends("key", **key)
        before = records.clock()
        idempotence_clock.advance(590)
        assert not shop.sends("key", **key)
        assert records.clock() - before >= 590
        idempotence_clock.advance(10)
        assert len([*shop.app.extensions["idempotence"].store.scan("")]) == 0
        assert shop.sends("key", **key)

    def test_with_its_tokens(self, idempotence_clock):
        shop, answers = Shop(), []
        for age in (290, 301, 400):
            token = token_for(shop.app.test_client())
            idempotence_clock.advance(age)
            answers.append(shop.post("token-guard", **{"Idempotence-Token": token}))
        assert [answer.status_code for answer in answers] == [200, 400, 400]
        assert answers[2].json["type"].endswith("token-expired")

    def test_with_its_operations_and_named_locks(self, idempotence_clock):
        def firsts():
            with shop.app.app_context(), shop.idempotence.once("mail", 7, ttl=100) as once:
                return once.first

        shop = Shop()
        assert [firsts(), firsts()] == [True, False]
        idempotence_clock.advance(100)
        assert firsts()
        with shop.app.app_context(), shop.idempotence.lock("daily"):
            idempotence_clock.advance(3500)
            with pytest.raises(Running):
                elsewhere(shop.enter_lock, "daily")


class TestRunningViews:
    @pytest.fixture
    def slow(self):
        """A view that runs until it may end, and the answers to its requests."""
        shop = Shop(IDEMPOTENCE_LEASE=30, IDEMPOTENCE_MAX_HOLD=600)
        shop.began, shop.may_end, shop.answers = threading.Event(), threading.Event(), []

        def work():
            shop.began.set()
            shop.may_end.wait(PATIENCE)
            return shop.run()

        view = idempotent(wait=20)(work)
        shop.app.add_url_rule("/slow", "slow", view, methods=["POST"])

        def send():
            thread = threading.Thread(
                target=lambda: shop.answers.append(shop.post("slow", **{"Idempotency-Key": "k"}))
            )
            thread.start()
            return thread

        shop.send = send
        yield shop
        shop.may_end.set()

    def test_keep_their_claims_while_time_passes(self, slow, idempotence_clock):
        first = slow.send()
        assert slow.began.wait(PATIENCE)
        idempotence_clock.advance(500)
        second = slow.send()
        time.sleep(0.1)
        slow.may_end.set()
        for thread in (first, second):
            thread.join(PATIENCE)
        assert slow.runs == 1
        assert sorted(each.status_code for each in slow.answers) == [200, 200]

    def test_lose_them_at_the_longest_hold(self, slow, idempotence_clock, caplog):
        first = slow.send()
        assert slow.began.wait(PATIENCE)
        idempotence_clock.advance(700)
        assert "IDEMPOTENCE_MAX_HOLD" in caplog.text
        slow.began.clear()
        second = slow.send()
        assert slow.began.wait(PATIENCE)
        slow.may_end.set()
        for thread in (first, second):
            thread.join(PATIENCE)
        assert slow.runs == 2

    def test_a_request_that_waits_gives_up_when_its_time_has_come(self, slow, idempotence_clock):
        first = slow.send()
        assert slow.began.wait(PATIENCE)
        second = slow.send()
        began = time.monotonic()
        while second.is_alive() and time.monotonic() < began + PATIENCE:
            idempotence_clock.advance(5)
            second.join(0.05)
        assert time.monotonic() - began < 3
        assert [each.status_code for each in slow.answers] == [409]
        slow.may_end.set()
        first.join(PATIENCE)

    @pytest.mark.timed
    def test_a_short_lease_is_renewed_after_a_jump(self, idempotence_clock):
        shop = Shop(IDEMPOTENCE_LEASE=30)
        with shop.app.app_context():
            with shop.idempotence.lock("warm up"):
                idempotence_clock.advance(4000)
            with shop.idempotence.lock("daily", lease=0.5):
                time.sleep(0.8)
                with pytest.raises(Running):
                    elsewhere(shop.enter_lock, "daily")


class TestKeepersOfOtherClocks:
    """Applications of other tests that are still there, with claims that nobody ends."""

    @pytest.mark.parametrize("server", [False, True])
    def test_do_not_hold_up_the_time(self, server, redis_url, idempotence_clock):
        store = open_store(redis_url, {}) if server else MemoryStore()
        harness, ticks = KeeperHarness(store, clock=None if server else FakeClock(0)), []
        harness.hold()
        harness.keeper.tick = lambda: ticks.append(1)
        idempotence_clock.advance(4000)
        assert len(ticks) == (0 if server else 1)  # those on servers are left alone


class TestStoresOnServers:
    @pytest.mark.parametrize("kind", ["redis", "sqlite"])
    def test_cannot_follow_and_advancing_says_so(self, kind, request, idempotence_clock):
        shop = Shop(**storage_settings(kind, request))
        name = type(shop.app.extensions["idempotence"].store).__name__
        idempotence_clock.advance(5)  # nothing in this test has used it yet
        assert shop.sends("lock")
        before = Engine.clock()
        with pytest.raises(ConfigurationError, match=f"'shop' on {name}: .* memory://"):
            idempotence_clock.advance(60)
        assert Engine.clock() - before < 30

    def test_whose_keeper_settles_what_an_earlier_test_has_left_do_not_matter(
        self, fresh_redis, idempotence_clock
    ):
        app = Shop(IDEMPOTENCE_STORAGE_URI=fresh_redis.url).app
        engine = app.extensions["idempotence"].engine
        claim = Claim(app, LockGuard(), "view")
        fresh_redis.stop()
        engine.store_calls.call(
            claim, "release", lambda: engine.store.release("k", b"o" * 16), after_view=True
        )
        idempotence_clock.advance(60)

    def test_of_other_tests_do_not_matter(self, redis_url):
        shop = Shop(IDEMPOTENCE_STORAGE_URI=redis_url)
        assert shop.sends("lock")
        with control_time() as clock:
            clock.advance(60)


class TestTheEndOfTheClock:
    def test_leaves_the_time_of_day_and_sleeping_as_they_were(self):
        before = (Tokens.clock, Records.clock, Engine.sleep)
        with control_time() as clock:
            clock.advance(86400)
            assert Tokens.clock() - time.time() > 86000
        assert (Tokens.clock, Records.clock, Engine.sleep) == before
        assert abs(Tokens.clock() - time.time()) < 60

    def test_never_turns_the_clock_of_leases_back(self):
        of_the_module.post("lock")
        with control_time() as clock:
            clock.advance(86400)
            inside = Engine.clock(), MemoryStore.clock()
        assert Engine.clock() >= inside[0]
        assert MemoryStore.clock() >= inside[1]
        assert of_the_module.sends("lock")

    def test_one_within_another_moves_both(self):
        with control_time() as outer:
            began = Tokens.clock()
            with control_time() as inner:
                inner.advance(100)
                outer.advance(1000)
                assert 1100 <= Tokens.clock() - began < 1200
            assert 1000 <= Tokens.clock() - began < 1100


class TestClocksOfTheirOwn:
    def test_stay_with_a_store_and_an_application_that_have_one(self, idempotence_clock):
        own = FakeClock()
        shop = Shop()
        own.rule(shop.app)
        store = MemoryStore(clock=own)
        assert shop.sends("lock")
        store.put_token("t", b"", 60)
        idempotence_clock.advance(3600)
        assert not shop.sends("lock")
        assert len([*store.scan("")]) == 1
        own.advance(60)
        assert shop.sends("lock")
        assert len([*store.scan("")]) == 0


def test_time_neither_goes_back_nor_ends(idempotence_clock):
    shop = Shop()
    for seconds in (-1, float("nan"), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="does not go back"):
            idempotence_clock.advance(seconds)
    for seconds in (float("inf"), 1e12, timedelta(days=40_000)):
        with pytest.raises(ValueError, match="a century at most"):
            idempotence_clock.advance(seconds)
    idempotence_clock.advance(timedelta(days=36_525))
    assert [shop.sends("lock") for _ in range(2)] == [True, False]


def test_a_long_time_is_advanced_in_little(idempotence_clock):
    shop = Shop(IDEMPOTENCE_LEASE=0.5, IDEMPOTENCE_MAX_HOLD=3600)
    with shop.app.app_context(), shop.idempotence.lock("daily"):
        began = time.monotonic()
        idempotence_clock.advance(600)
    assert time.monotonic() - began < 12
    assert clear_store(shop.app) == 0
