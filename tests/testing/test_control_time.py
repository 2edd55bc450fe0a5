"""One clock for all applications: `control_time`, and the fixture `idempotence_clock`."""

import threading
import time
from datetime import timedelta

import pytest
from helpers.apps import make_app
from helpers.keeper_harness import KeeperHarness

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    MemoryStore,
    Running,
    idempotent,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.engine.claim import Attempt
from flask_idempotence.engine.engine import Engine
from flask_idempotence.request.tokens import Tokens
from flask_idempotence.response.records import Records
from flask_idempotence.stores import open_store
from flask_idempotence.testing import FakeClock, clear_store, control_time, token_for

PATIENCE = 5


class Shop:
    """An application with a view behind each guard."""

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
        """Send a request; return whether its view ran."""
        before = self.runs
        self.post(name, **headers)
        return self.runs > before


of_the_module = Shop()


@pytest.fixture(scope="module")
def wide_shop():
    return Shop()


@pytest.fixture
def early_shop():
    return Shop()


@pytest.fixture(params=["module", "wide fixture", "before the clock", "in the test"])
def shop(request, wide_shop, early_shop):
    """An application made at different times, and the clock."""
    clock = request.getfixturevalue("idempotence_clock")
    known = {"module": of_the_module, "wide fixture": wide_shop, "before the clock": early_shop}
    shop = known.get(request.param) or Shop()
    shop.clock = clock
    return shop


class TestEveryApplicationFollows:
    def test_with_its_locks(self, shop):
        assert shop.sends("lock")
        shop.clock.advance(59)
        assert not shop.sends("lock")
        shop.clock.advance(1)
        assert shop.sends("lock")

    def test_with_its_keys(self, shop):
        key = {"Idempotency-Key": "order-1"}
        assert shop.sends("key", **key)
        shop.clock.advance(590)
        assert not shop.sends("key", **key)
        shop.clock.advance(timedelta(seconds=10))
        assert shop.sends("key", **key)

    @pytest.mark.parametrize(("age", "status"), [(290, 200), (301, 409), (400, 410)])
    def test_with_its_tokens(self, shop, age, status):
        token = token_for(shop.app.test_client())
        shop.clock.advance(age)
        answer = shop.post("token-guard", **{"Idempotence-Token": token})
        assert (answer.status_code == 200) == (status == 200)
        if age == 400:
            assert answer.json["type"].endswith("token-expired")

    def test_with_its_operations_and_named_locks(self, shop):
        def firsts():
            with shop.app.app_context(), shop.idempotence.once("mail", 7, ttl=100) as once:
                return once.first

        assert [firsts(), firsts()] == [True, False]
        shop.clock.advance(100)
        assert firsts()
        with shop.app.app_context(), shop.idempotence.lock("daily"):
            shop.clock.advance(3500)
            with pytest.raises(Running):
                in_a_thread(lambda: enter_lock(shop, "daily"))

    def test_with_its_memory_store(self, shop):
        store = shop.app.extensions["idempotence"].store
        store.put_token("t", b"", 1000)
        shop.clock.advance(999)
        assert store.peek("t").expires_in < 1.1
        shop.clock.advance(1)
        assert store.count_all() == 0

    def test_with_encrypted_records(self, idempotence_clock):
        pytest.importorskip("cryptography")
        shop = Shop(IDEMPOTENCE_KEY_ENCRYPTION_KEYS=["A" * 43 + "="])
        state = shop.app.extensions["idempotence"]
        assert shop.sends("key", **{"Idempotency-Key": "order-1"})
        before = state.engine.services.records.clock()
        idempotence_clock.advance(500)
        assert state.engine.services.records.clock() - before >= 500
        assert not shop.sends("key", **{"Idempotency-Key": "order-1"})


def enter_lock(shop, name):
    with shop.app.app_context(), shop.idempotence.lock(name):
        pass


def in_a_thread(call):
    """Call it in a thread; raise its error here."""
    errors = []

    def run():
        try:
            call()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    for error in errors:
        raise error


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
        first.join(PATIENCE)
        second.join(PATIENCE)
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

    def test_a_sleeping_request_wakes_when_its_time_has_come(self, idempotence_clock):
        engine = Shop().app.extensions["idempotence"].engine
        sleeper = threading.Thread(target=engine.sleep, args=[30])
        sleeper.start()
        idempotence_clock.advance(20)
        sleeper.join(0.1)
        assert sleeper.is_alive()
        idempotence_clock.advance(10)
        sleeper.join(PATIENCE)
        assert not sleeper.is_alive()

    def test_a_short_lease_is_renewed_after_a_jump(self, idempotence_clock):
        shop = Shop(IDEMPOTENCE_LEASE=30)
        with shop.app.app_context():
            with shop.idempotence.lock("warm up"):
                idempotence_clock.advance(4000)
            with shop.idempotence.lock("daily", lease=0.5):
                time.sleep(0.8)
                with pytest.raises(Running):
                    in_a_thread(lambda: enter_lock(shop, "daily"))


class TestKeepersOfOtherClocks:
    """Applications of other tests that are still there, with claims that nobody ends."""

    def test_do_not_hold_up_the_time(self, idempotence_clock):
        harness, ticks = KeeperHarness(MemoryStore(), clock=FakeClock(0)), []
        harness.hold()
        harness.keeper.tick = lambda: ticks.append(1)
        idempotence_clock.advance(4000)
        assert len(ticks) == 1

    def test_and_those_on_servers_are_left_alone(self, redis_url, idempotence_clock):
        harness, ticks = KeeperHarness(open_store(redis_url, {}), clock=Engine.clock), []
        harness.hold()
        harness.keeper.tick = lambda: ticks.append(1)
        idempotence_clock.advance(4000)
        assert ticks == []


class TestStoresOnServers:
    @pytest.mark.parametrize("server", ["redis", "sqlite"])
    def test_cannot_follow_and_advancing_says_so(
        self, server, request, tmp_path, idempotence_clock
    ):
        if server == "redis":
            uri, name = request.getfixturevalue("redis_url"), "RedisStore"
        else:
            uri, name = f"sqlite:///{tmp_path}/shop.db", "SqlStore"
        shop = Shop(IDEMPOTENCE_STORAGE_URI=uri)
        shop.app.test_cli_runner().invoke(args=["idempotence", "init-db"])
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
        attempt = Attempt(app, "lock", "view")
        fresh_redis.stop()
        engine.policy.call(
            attempt, "release", lambda: engine.store.release("k", b"o" * 16), after_view=True
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
        assert store.count_all() == 1
        own.advance(60)
        assert shop.sends("lock")
        assert store.count_all() == 0

    def test_ruling_an_application_of_a_factory_rules_its_memory_store(self):
        shop, clock = Shop(), FakeClock()
        clock.rule(shop.app)
        assert [shop.sends("lock"), shop.sends("lock")] == [True, False]
        clock.advance(60)
        assert shop.sends("lock")


def test_time_does_not_go_back(idempotence_clock):
    for seconds in (-1, float("nan"), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="does not go back"):
            idempotence_clock.advance(seconds)


def test_time_does_not_end(idempotence_clock):
    shop = Shop()
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
