"""A server that falls silent: a few operations wait for it, then none but the one that looks."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.apps import make_app
from helpers.servers.faults import Proxy, SilentServer
from helpers.servers.processes import all_at_once, until
from helpers.store_assertions import is_true_in_a_child

from flask_idempotence import StoreError, no_repeat_submit
from flask_idempotence.stores import open_store
from flask_idempotence.stores.process import OPEN_AFTER, PROBE_EVERY

pytestmark = pytest.mark.topology

DEADLINE = 0.5
AT_ONCE = 0.15


def timed(call):
    started, error = time.monotonic(), None
    try:
        call()
    except StoreError as raised:
        error = raised
    return error, time.monotonic() - started


def wear_out(store):
    for _ in range(OPEN_AFTER):
        assert timed(store.ping)[1] > 0.8 * DEADLINE


@pytest.fixture
def store(fresh_redis):
    fresh = open_store(fresh_redis.url, {"deadline": DEADLINE})
    fresh.ping()
    return fresh


def test_after_a_few_silences_everybody_fails_at_once(fresh_redis, store):
    fresh_redis.pause()
    wear_out(store)
    for _ in range(20):
        error, took = timed(store.ping)
        assert "circuit breaker" in str(error)
        assert not error.sent  # nothing has to be taken back
        assert took < AT_ONCE


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_one_at_a_time_in_each_process_looks_until_it_answers_again(fresh_redis, store):
    fresh_redis.pause()
    wear_out(store)
    assert is_true_in_a_child(lambda: timed(store.ping)[1] > AT_ONCE)
    for _ in range(2):
        time.sleep(PROBE_EVERY)
        outcomes = all_at_once([lambda: timed(store.ping)] * 8)
        assert sum(took > AT_ONCE for _, took in outcomes) == 1
    fresh_redis.resume()
    assert until(lambda: timed(store.ping)[0] is None, PROBE_EVERY + 0.5)
    assert timed(store.ping)[0] is None


def test_an_answer_in_between_begins_the_count_anew(fresh_redis, store):
    for _ in range(2):
        for _ in range(OPEN_AFTER - 1):
            fresh_redis.pause()
            timed(store.ping)
            fresh_redis.resume()
        assert timed(store.ping)[0] is None


def test_what_was_sent_before_an_answer_says_nothing_about_the_server_now(redis_server):
    with Proxy(redis_server) as proxy:
        store = open_store(proxy.url, {"deadline": DEADLINE})
        proxy.black_hole = True
        with ThreadPoolExecutor() as pool:
            before = [pool.submit(timed, store.ping) for _ in range(OPEN_AFTER)]
            time.sleep(DEADLINE / 2)
            proxy.black_hole = False
            assert timed(store.ping)[0] is None
            assert all("Timeout" in str(each.result()[0]) for each in before)
        assert timed(store.ping)[0] is None


def test_who_refuses_is_asked_every_time(redis_server, redis_url):
    with Proxy(redis_server) as proxy:
        store = open_store(proxy.url, {"deadline": DEADLINE})
        proxy.refuse()
        for _ in range(3 * OPEN_AFTER):
            error, took = timed(store.ping)
            assert "refused" in str(error)
            assert took < AT_ONCE
        proxy.accept()
        assert timed(store.ping)[0] is None


def test_sentinels_that_are_all_silent_are_soon_asked_at_no_cost():
    with SilentServer() as one, SilentServer() as two:
        store = open_store(f"redis+sentinel://{one.address},{two.address}/shop", {"deadline": 0.6})
        error, took = timed(store.ping)
        assert one.address in str(error)
        assert two.address in str(error)
        assert not error.sent
        assert AT_ONCE < took < 0.9
        for _ in range(OPEN_AFTER):
            timed(store.ping)
        for _ in range(5):
            error, took = timed(store.ping)
            assert "circuit breaker" in str(error)
            assert took < AT_ONCE


def test_requests_cost_next_to_nothing_while_redis_is_silent(fresh_redis):
    app = make_app(
        TESTING=False,
        IDEMPOTENCE_STORAGE_URI=fresh_redis.url,
        IDEMPOTENCE_STORAGE_OPTIONS={"deadline": DEADLINE},
    )
    app.add_url_rule("/<what>", "view", no_repeat_submit(lambda what: what), methods=["POST"])
    client = app.test_client()
    assert client.post("/first").status_code == 200
    fresh_redis.pause()
    for number in range(OPEN_AFTER):
        assert client.post(f"/{number}").status_code == 503
    started, costs = time.monotonic(), []
    while time.monotonic() < started + 2:
        asked = time.monotonic()
        assert client.post(f"/{len(costs)} again").status_code == 503
        costs.append(time.monotonic() - asked)
    costs.sort()
    assert costs[len(costs) // 2] < 0.05
    # The keeper and the requests together send one every PROBE_EVERY and the time it takes.
    assert sum(cost > AT_ONCE for cost in costs) <= 2 / PROBE_EVERY
    fresh_redis.resume()
    assert until(lambda: client.post("/last").status_code == 200, PROBE_EVERY + 0.8)
