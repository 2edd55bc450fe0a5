"""Host names: a look-up that hangs, fails late or changes, and names with several addresses."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.servers.processes import HOST, all_at_once, free_port, until
from helpers.servers.resolver import Resolver, dead_addresses
from helpers.store_assertions import answers, is_true_in_a_child, works

from flask_idempotence import StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.process import OPEN_AFTER
from flask_idempotence.stores.redis import link
from flask_idempotence.stores.redis import names as module
from flask_idempotence.stores.redis.names import Names

PATIENCE = 10
"""Seconds after which a wait has no end."""


@pytest.fixture
def resolver(monkeypatch, redis_server, redis_url):
    """Yield a resolver that knows the server as `redis.test`, and has told nobody yet."""
    monkeypatch.setattr(link, "names", Names())
    made = Resolver(monkeypatch, redis_test=[(HOST, redis_server.port)])
    yield made
    made.answer()


def open_named(deadline=0.3):
    return open_store("redis://redis.test:1/0", {"deadline": deadline})


def renew_connections(store):
    store._deployment.close()


def ended(call):
    started = time.monotonic()
    try:
        call()
    except StoreError as error:
        return error
    finally:
        assert time.monotonic() - started < PATIENCE
    return None


def test_callers_share_a_look_up_that_hangs_until_their_deadlines(resolver):
    store = open_named()
    with resolver.hanging():
        errors = all_at_once([lambda: ended(store.ping)] * 32)
        assert all("Timeout" in str(error) for error in errors)
        assert not any(error.sent for error in errors)
        assert "circuit breaker" in str(ended(store.ping))
    assert resolver.asked == {"redis.test": 1}
    assert until(lambda: answers(store))


def test_a_look_up_that_fails_after_the_deadline_counts_as_a_time_out(resolver):
    store, failure = open_named(0.1), socket.gaierror(-2, "Name or service not known")
    good, resolver.hosts["redis.test"] = resolver.hosts["redis.test"], failure
    for _ in range(OPEN_AFTER):
        with resolver.hanging():
            assert "Timeout" in str(ended(store.ping))
        assert until(lambda: not link.names._under_way)
    assert "circuit breaker" in str(ended(store.ping))
    resolver.hosts["redis.test"] = good
    assert until(lambda: answers(store))


def test_a_name_that_does_not_exist_costs_no_time_and_is_asked_for_each_time(resolver):
    resolver.hosts["redis.test"] = socket.gaierror(-2, "Name or service not known")
    store = open_named(PATIENCE)
    for _ in range(2 * OPEN_AFTER):
        before = resolver.asked["redis.test"]
        assert "Name or service not known" in str(ended(store.ping))
        assert resolver.asked["redis.test"] > before


@pytest.mark.parametrize("failure", [None, socket.gaierror(-3, "Temporary failure")])
def test_the_addresses_of_last_time_will_do_while_the_resolver_fails(resolver, failure):
    store = open_named(PATIENCE)
    store.ping()
    renew_connections(store)
    if failure:
        resolver.hosts["redis.test"] = failure
        store.ping()
    else:
        with resolver.hanging():
            store.ping()


def test_a_name_that_leads_elsewhere_is_followed_at_the_next_connection(resolver, fresh_redis):
    store = open_named(PATIENCE)
    store.put_token("here", b"", 60)
    resolver.hosts["redis.test"] = [(HOST, fresh_redis.port)]
    renew_connections(store)
    store.put_token("there", b"", 60)
    assert fresh_redis.client().keys() == [b"there"]


def test_a_name_whose_old_address_refuses_waits_for_the_new_one(
    resolver, fresh_redis, monkeypatch
):
    resolver.hosts["redis.test"] = [(HOST, fresh_redis.port)]
    store = open_named(PATIENCE)
    store.ping()
    resolver.hang()
    fresh_redis.kill()  # a failover, which the resolver is slow to learn of
    connect, refused = socket.socket.connect, []

    def connected(self, address):
        try:
            return connect(self, address)
        except ConnectionRefusedError:
            refused.append(address)
            resolver.answer()
            raise

    resolver.hosts["redis.test"] = [(HOST, resolver_port(resolver, fresh_redis))]
    monkeypatch.setattr(module.socket.socket, "connect", connected)
    store.ping()
    assert refused


def resolver_port(resolver, fresh_redis):
    fresh_redis.port = free_port()
    fresh_redis.start()
    return fresh_redis.port


def test_earlier_addresses_that_are_dead_do_not_hide_the_new_one(
    resolver, redis_server, monkeypatch
):
    """The look-up ends while the first of them is tried: the others would take the whole time."""
    connect = socket.socket.connect
    with dead_addresses(6) as dead:
        resolver.hosts["redis.test"] = dead
        store = open_named(0.6)
        ended(store.ping)
        resolver.hosts["redis.test"] = [(HOST, redis_server.port)]
        resolver.hang()
        answering = lambda self, address: resolver.answer() or connect(self, address)  # noqa: E731
        monkeypatch.setattr(module.socket.socket, "connect", answering)
        assert ended(store.ping) is None


@pytest.mark.parametrize("dead", [0, 2, 5])
def test_a_living_address_is_reached_wherever_it_is_in_the_list(resolver, redis_server, dead):
    """In one attempt or the next, and first from then on."""
    with dead_addresses(5) as addresses:
        addresses.insert(dead, (HOST, redis_server.port))
        resolver.hosts["redis.test"] = addresses
        store = open_named(1.0)
        ended(store.ping)
        store.ping()
    renew_connections(store)
    store.ping()
    assert link.names.found["redis.test", 1, 0][0][4][1] == redis_server.port


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_was_forked_during_a_look_up_makes_its_own(resolver):
    store = open_named(PATIENCE)
    with ThreadPoolExecutor(1) as pool, resolver.hanging():
        first = pool.submit(store.ping)
        assert until(lambda: resolver.asked["redis.test"] == 1)
        # Before the deadline of one who waits for the parent's.
        assert is_true_in_a_child(lambda: resolver.answer() or answers(store), PATIENCE // 2)
    first.result()


def test_where_no_thread_can_start_the_caller_asks(resolver, monkeypatch):
    monkeypatch.setattr(module, "start_daemon", lambda run, name: False)
    works(open_named(PATIENCE))
