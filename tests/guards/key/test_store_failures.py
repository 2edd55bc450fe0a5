"""Key mode where the store does not answer: no second run, and no lost answer."""

import threading
import time
from functools import partial

import pytest
from helpers.apps import make_app
from helpers.servers.faults import CLAIM
from helpers.servers.processes import all_at_once, until

from flask_idempotence import MemoryStore, idempotent
from flask_idempotence.stores.redis.store import COMPLETE as COMPLETE_SCRIPT
from flask_idempotence.testing import FakeClock, clear_store, record_signals

COMPLETE = COMPLETE_SCRIPT.digest.encode()
PATIENCE = 1.5  # seconds that a request may wait for a store that is away
GUARANTEES = pytest.mark.parametrize("path", ["/pay", "/once"])


class Shop:
    """An application with a view of each guarantee, on a store that can be taken away."""

    def __init__(self, url="memory://", *, store=None, **settings):
        settings = {"TESTING": False, "IDEMPOTENCE_STORAGE_URI": url, **settings}
        self.app = make_app(store=store, **settings)
        self.keeper = self.app.extensions["idempotence"].engine.keeper
        self.in_view = lambda: None
        for path, view, options in [
            ("/pay", self._view, {}),
            ("/once", self._view, {"guarantee": "at-most-once"}),
            ("/stream", self._streaming_view, {}),
        ]:
            self.app.add_url_rule(path, path, idempotent(**options)(view), methods=["POST"])
        self.runs = 0
        for self.status in (500, 201):  # the server knows the scripts, and is connected
            assert self.post("warm up").status_code == self.status
        clear_store(self.app)
        self.runs = 0

    def _view(self):
        self.runs += 1
        run = self.runs
        self.in_view()
        return {"run": run}, self.status

    def _streaming_view(self):
        self.runs += 1

        def parts():
            yield "one "
            self.in_view()
            yield "two"

        return parts(), self.status

    def post(self, key="k", path="/pay"):
        """Send the request and close its response, as a server does."""
        client = self.app.test_client()
        return client.post(path, headers={"Idempotency-Key": key}, buffered=True)

    def codes(self, times, *arguments):
        return [self.post(*arguments).status_code for _ in range(times)]

    def replays(self, *arguments):
        """Whether the request is answered by what is remembered."""
        return "Idempotent-Replayed" in self.post(*arguments).headers


def slug(answer):
    return answer.json["type"].rpartition(":")[2]


class TestCompletion:
    @GUARANTEES
    def test_whose_answer_is_lost_for_good_is_told_to_be_not_stored_yet(self, proxy, path):
        shop = Shop(proxy.url)
        shop.in_view = lambda: proxy.drop_next_replies(2, after=COMPLETE)
        with record_signals(shop.app) as signals:
            answer = shop.post("k", path)
            assert (answer.json, answer.status_code) == ({"run": 1}, 201)
            assert answer.headers["Idempotent-Stored"] == "false"
            replay = shop.post("k", path)  # it had arrived
            assert (replay.json, replay.status_code) == ({"run": 1}, 201)
            assert "Idempotent-Stored" not in replay.headers
            assert until(lambda: signals.count("completed"))
        assert (shop.runs, signals.names.count("completed")) == (1, 1)
        assert "lease_lost" not in signals.names

    @pytest.mark.parametrize("rival", ["nobody", "/pay", "/once"])
    def test_comes_after_an_outage_that_is_longer_than_the_lease(self, proxy, redis_server, rival):
        path = "/pay" if rival == "nobody" else rival
        shop = Shop(proxy.url, IDEMPOTENCE_LEASE=0.5)
        other = Shop(redis_server.url, IDEMPOTENCE_LEASE=0.5)
        shop.in_view = proxy.refuse
        with record_signals(shop.app) as signals:
            assert shop.post("k", path).headers["Idempotent-Stored"] == "false"
            time.sleep(0.6)
            assert shop.codes(2, "k", path) == [503, 503]
            if rival != "nobody":
                # That of a claim which does not outlive its lease is the second run that a lease
                # stands for; the other one remembers that there was a first.
                found = other.post("k", path)
                assert found.status_code == (201 if rival == "/pay" else 409)
                assert rival == "/pay" or slug(found) == "outcome-unknown"
            proxy.accept()
            ending = "lease_lost" if rival == "/pay" else "completed"
            assert until(lambda: signals.count(ending))
        assert shop.replays("k", path)
        assert other.replays("k", path)
        assert (shop.runs, other.runs) == (1, 1 if rival == "/pay" else 0)
        told = [
            (name, arguments.get("during"))
            for name, arguments in signals.events
            if name in {"completed", "lease_lost"}
        ]
        assert told == ([("lease_lost", "settle")] if rival == "/pay" else [("completed", None)])

    @pytest.mark.timed
    def test_that_is_refused_for_want_of_memory_keeps_its_claim_beyond_the_lease(
        self, fresh_redis
    ):
        shop, behind = Shop(fresh_redis.url, IDEMPOTENCE_LEASE=0.8), fresh_redis.client()
        requests = [("k", "/pay"), ("k", "/once")]
        shop.in_view = threading.Barrier(2, lambda: fill(behind), timeout=20).wait
        with record_signals(shop.app) as signals:
            answers = all_at_once([partial(shop.post, *request) for request in requests])
            assert [answer.headers["Idempotent-Stored"] for answer in answers] == ["false"] * 2
            ends = time.monotonic() + 1.8
            while time.monotonic() < ends:
                assert {slug(shop.post(*request)) for request in requests} == {"key-in-progress"}
                time.sleep(0.02)
            assert signals.count("completed") == 0
            behind.config_set("maxmemory", 0)
            assert until(lambda: signals.count("completed") == 2)
            assert all(shop.replays(*request) for request in requests)
        assert (shop.runs, signals.count("completed"), signals.count("lease_lost")) == (2, 2, 0)

    def test_is_given_up_after_the_longest_hold(self, fresh_redis, caplog):
        settings = {"IDEMPOTENCE_LEASE": 0.5, "IDEMPOTENCE_MAX_HOLD": 0.7}
        shop, behind = Shop(fresh_redis.url, **settings), fresh_redis.client()
        behind.flushall()
        shop.in_view = lambda: fill(behind)
        began = time.monotonic()
        assert shop.post().headers["Idempotent-Stored"] == "false"
        assert until(lambda: not behind.keys())
        assert 0.7 < time.monotonic() - began < 2
        assert until(lambda: "A settlement came too late" in caplog.text)
        behind.config_set("maxmemory", 0)
        time.sleep(0.6)  # nobody is trying any more
        assert behind.keys() == []
        shop.in_view = lambda: None
        assert (shop.post().json, shop.runs) == ({"run": 2}, 2)

    def test_of_a_stream_is_made_up_too_but_its_headers_have_gone_out(self, proxy):
        shop = Shop(proxy.url)
        shop.in_view = proxy.refuse
        with record_signals(shop.app) as signals:
            answer = shop.post("k", "/stream")
            assert (answer.status_code, answer.text) == (201, "one two")
            assert "Idempotent-Stored" not in answer.headers
            assert shop.codes(1, "k", "/stream") == [503]
            proxy.accept()
            assert until(lambda: signals.count("completed"))
        assert slug(shop.post("k", "/stream")) == "response-not-stored"
        assert shop.runs == 1


def fill(client):
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)


class TestClaim:
    @GUARANTEES
    def test_whose_answer_is_lost_for_good_is_taken_back(self, proxy, path):
        shop = Shop(proxy.url)
        proxy.drop_next_replies(2, after=CLAIM)
        with record_signals(shop.app) as signals:
            answer = shop.post("k", path)
        assert (answer.status_code, slug(answer)) == (503, "store-unavailable")
        assert answer.headers["Retry-After"] == "1"
        assert signals.names == ["store_failed", "rejected"]
        assert shop.runs == 0
        assert slug(shop.post("k", path)) == "key-in-progress"  # it had been granted
        assert until(lambda: shop.post("k", path).status_code == 201, 3)
        assert (shop.replays("k", path), shop.runs) == (True, 1)

    def test_that_nobody_took_back_leaves_an_unknown_outcome_where_it_may_run_once_at_most(
        self, proxy
    ):
        shop = Shop(proxy.url, IDEMPOTENCE_LEASE=0.5)
        shop.keeper.retry = lambda unsettled: None  # as if the process had died
        proxy.drop_next_replies(2, after=CLAIM)
        assert shop.post("k", "/once").status_code == 503
        time.sleep(0.6)
        assert slug(shop.post("k", "/once")) == "outcome-unknown"
        assert shop.runs == 0

    def test_of_a_repeat_that_waits_is_refused_when_the_store_goes_away(self, proxy):
        shop, go_on = Shop(proxy.url, IDEMPOTENCE_KEY_WAIT=20), threading.Event()
        shop.in_view = lambda: go_on.wait(10)
        answers = {}

        def post(name):
            answers[name] = shop.post()

        first, repeat = (
            threading.Thread(target=post, args=[name]) for name in ("first", "repeat")
        )
        first.start()
        assert until(lambda: shop.runs == 1)
        repeat.start()
        time.sleep(0.2)
        proxy.refuse()
        repeat.join(PATIENCE + 1)
        assert answers["repeat"].status_code == 503
        go_on.set()
        first.join()
        assert answers["first"].headers["Idempotent-Stored"] == "false"
        proxy.accept()
        assert until(shop.replays, 3)
        assert shop.runs == 1


class TestStaleOwner:
    @pytest.mark.parametrize("store", ["memory", "redis"])
    def test_that_completes_changes_nothing_of_its_successors(self, store, request):
        if store == "memory":
            clock = FakeClock()
            shop = Shop(store=MemoryStore(clock=clock), IDEMPOTENCE_LEASE=0.5)
            clock.rule(shop.app)
            sleep = clock.advance
        else:
            shop = Shop(request.getfixturevalue("redis_url"), IDEMPOTENCE_LEASE=0.5)
            sleep = time.sleep
        shop.keeper.watch = lambda claim: None  # nobody renews
        inner = []

        def outlived():
            shop.in_view = lambda: None
            sleep(0.6)
            inner.append(shop.post().json)

        shop.in_view = outlived
        with record_signals(shop.app) as signals:
            answer = shop.post()
        assert (answer.status_code, answer.json, inner) == (201, {"run": 1}, [{"run": 2}])
        assert signals.names == ["claimed", "claimed", "completed", "lease_lost"]
        assert [shop.post().json for _ in range(2)] == [{"run": 2}] * 2
        assert shop.runs == 2
