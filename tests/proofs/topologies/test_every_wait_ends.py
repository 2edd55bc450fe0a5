"""Where a call of Redis can hang, on each topology: how long 32 requests take, and how it ends.

No request takes longer than its deadline and half a second. The circuit opens, so that further
ones fail at once. After the cure none waits again, and within a second all succeed.
`test_gevent.py` runs this module once more, under gevent.
"""

import contextlib
import itertools
import os
import sys
import time
from types import SimpleNamespace

import pytest
from helpers.fault_soak import SECONDS, Soak
from helpers.servers.faults import Proxy
from helpers.servers.processes import HOST, RedisServer, all_at_once, until
from helpers.servers.resolver import Resolver, dead_addresses
from helpers.servers.topologies import SERVICE, Cluster, SentinelGroup, TlsServer, has_tls
from helpers.store_assertions import is_true_in_a_child

from flask_idempotence import MemoryStore, StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed
from flask_idempotence.stores.process import OPEN_AFTER
from flask_idempotence.stores.redis import link
from flask_idempotence.stores.redis.names import Names

pytestmark = pytest.mark.topology

CALLERS = 32
DEADLINE = 1.0
MARGIN = 0.5
DEAD = 6

_keys = map("key {}".format, itertools.count())


@contextlib.contextmanager
def alone():
    with RedisServer() as server, Proxy(server) as proxy:
        user = ("SETUSER", "shop", "on", ">password", "~*", "&*", "+@all")
        server.client().execute_command("ACL", *user)
        yield SimpleNamespace(
            servers=[server],
            proxy=proxy,
            addresses=[(HOST, server.port)],
            url="redis://shop:password@redis.test:1/1",
        )


@contextlib.contextmanager
def tls():
    with TlsServer() as server, Proxy(server) as proxy:
        yield SimpleNamespace(
            servers=[server],
            proxy=proxy,
            addresses=[(HOST, server.port)],
            url=f"rediss://redis.test:1/0?ssl_ca_certs={server.ca}&ssl_check_hostname=false",
        )


@contextlib.contextmanager
def sentinel():
    with SentinelGroup(down_after=60) as group:
        yield SimpleNamespace(
            servers=[*group.servers, *group.sentinels],
            proxy=None,
            addresses=[group.addresses[0]],
            url=f"redis+sentinel://redis.test:1/{SERVICE}",
        )


@contextlib.contextmanager
def cluster():
    with Cluster(timeout=60) as nodes:
        yield SimpleNamespace(
            servers=nodes.nodes,
            proxy=None,
            addresses=[(HOST, nodes.nodes[0].port)],
            url="redis+cluster://redis.test:1",
        )


TOPOLOGIES = {"alone": alone, "tls": tls, "sentinel": sentinel, "cluster": cluster}


@pytest.fixture(scope="module", params=TOPOLOGIES)
def topology(request):
    if request.param == "tls" and not has_tls():
        pytest.skip("the server was built without TLS")
    with TOPOLOGIES[request.param]() as found:
        found.name = request.param
        yield found


@pytest.fixture
def world(topology, monkeypatch):
    """Yield a topology with a store that has used it, behind a name of the tests' own."""
    monkeypatch.setattr(link, "names", Names())
    topology.resolver = Resolver(monkeypatch, redis_test=topology.addresses)
    topology.store = open_store(topology.url, {"deadline": DEADLINE})
    assert until(lambda: outcome_of(topology.store)[0] == "done", 10)
    yield topology
    topology.resolver.answer()
    topology.resolver.hosts["redis.test"] = topology.addresses
    topology.store._deployment.close()


def outcome_of(store):
    key, started = next(_keys), time.monotonic()
    try:
        found = store.claim(key, os.urandom(16), NO_FINGERPRINT, 60, 0)
        outcome = "done" if found == Claimed() else repr(found)
    except StoreError as error:
        outcome = "circuit" if "circuit breaker" in str(error) else str(error)
    return outcome, time.monotonic() - started


def wave(store):
    return all_at_once([lambda: outcome_of(store)] * CALLERS)


def as_new(world):
    """Let the store know neither a connection nor an address nor a node."""
    link.names.found.clear()
    deployment = world.store._deployment
    deployment.close()
    if world.name == "cluster":
        deployment._slots, deployment._known = [], dict(deployment._seeds)


@contextlib.contextmanager
def name_hangs(world):
    as_new(world)
    with world.resolver.hanging():
        yield


@contextlib.contextmanager
def name_fails_late(world):
    as_new(world)
    resolver, answer = world.resolver, world.resolver.getaddrinfo

    def late(*question, **options):
        if question[0] == "redis.test" and "flags" not in options:
            time.sleep(1.5 * DEADLINE)
            raise OSError(-3, "Temporary failure in name resolution")
        return answer(*question, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("socket.getaddrinfo", late)
        yield
    assert resolver.hosts


@contextlib.contextmanager
def addresses_are_dead(world):
    as_new(world)
    with dead_addresses(DEAD) as dead:
        good, world.resolver.hosts["redis.test"] = world.resolver.hosts["redis.test"], dead
        yield
        world.resolver.hosts["redis.test"] = good


@contextlib.contextmanager
def servers_are_frozen(world):
    for server in world.servers:
        server.pause()
    try:
        yield
    finally:
        for server in world.servers:
            server.resume()


@contextlib.contextmanager
def servers_are_frozen_at_the_handshake(world):
    """Of TLS, AUTH, ROLE, or CLUSTER SLOTS: the kernel takes the connection."""
    as_new(world)
    with servers_are_frozen(world):
        yield


def lead_through_proxy(world):
    if world.proxy is None:
        pytest.skip("no proxy leads to it")
    as_new(world)
    world.resolver.hosts["redis.test"] = [(HOST, world.proxy.port)]
    assert until(lambda: {outcome for outcome, _ in wave(world.store)} == {"done"})


@contextlib.contextmanager
def proxy_is_silent(world):
    lead_through_proxy(world)
    world.proxy.black_hole = True
    try:
        yield
    finally:
        world.proxy.black_hole = False


@contextlib.contextmanager
def connections_are_forgotten(world):
    lead_through_proxy(world)
    world.proxy.forget_connections()
    yield


def holding(marker):
    """Return a fault: no command with this marker is answered, others are."""

    @contextlib.contextmanager
    def fault(world):
        if world.name != "alone":
            pytest.skip("by a proxy that reads the commands")
        lead_through_proxy(world)
        as_new(world)
        world.proxy.marker = marker
        try:
            yield
        finally:
            world.proxy.let_go()

    return fault


FAULTS = {
    "name hangs": name_hangs,
    "name fails late": name_fails_late,
    "addresses are dead": addresses_are_dead,
    "frozen": servers_are_frozen,
    "frozen at the handshake": servers_are_frozen_at_the_handshake,
    "silent proxy": proxy_is_silent,
    "AUTH": holding(b"\r\nAUTH\r\n"),
    "SELECT": holding(b"\r\nSELECT\r\n"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_wait_ends_and_begins_no_other(world, fault):
    with FAULTS[fault](world):
        waves = [wave(world.store) for _ in range(OPEN_AFTER)]
        longest = max(took for outcomes in waves for _, took in outcomes)
        assert longest < DEADLINE + MARGIN
        assert not any(outcome == "done" for outcomes in waves for outcome, _ in outcomes)
        last = [outcome for outcome, _ in wave(world.store)]
        assert last.count("circuit") >= CALLERS - 1, last
    cured = time.monotonic()
    after = []
    while not after or any(outcome != "done" for outcome, _ in after[-1]):
        after.append(wave(world.store))
        assert time.monotonic() < cured + 10, after[-1]
        time.sleep(0.05)
    told = {outcome for outcomes in after[:-1] for outcome, _ in outcomes}
    assert told <= {"done", "circuit"} or fault == "name fails late", told
    # The last of its look-ups, and two probes that have met it.
    late = 4 * DEADLINE if fault == "name fails late" else 0
    assert time.monotonic() - cured < 1 + 2 * MARGIN + late


def test_connections_that_lead_nowhere_cost_one_deadline_and_no_more(world):
    with connections_are_forgotten(world):
        first = wave(world.store)
    assert max(took for _, took in first) < DEADLINE + MARGIN
    assert until(lambda: all(outcome == "done" for outcome, _ in wave(world.store)), 5)


def test_a_living_address_behind_dead_ones_is_reached(world):
    as_new(world)
    began = time.monotonic()
    with dead_addresses(DEAD) as dead:
        world.resolver.hosts["redis.test"] = [*dead, *world.resolver.hosts["redis.test"]]
        # A sentinel, or a node that is asked for the slots, has a part of the deadline only.
        outcomes = [outcome_of(world.store)]
        while outcomes[-1][0] != "done":
            assert time.monotonic() < began + 20, outcomes
            time.sleep(0.01)
            outcomes.append(outcome_of(world.store))
        assert len(outcomes) <= 3 or world.name in {"sentinel", "cluster"}
        assert max(took for _, took in outcomes) < DEADLINE + MARGIN
        assert {outcome for outcome, _ in wave(world.store)} == {"done"}
        world.resolver.hosts["redis.test"] = world.addresses


def test_a_server_that_does_not_read_what_is_sent_costs_one_deadline(world):
    record = os.urandom(32 << 20)
    with servers_are_frozen(world):
        started = time.monotonic()
        with pytest.raises(StoreError):
            world.store.complete("large", bytes(16), NO_FINGERPRINT, record, 60)
        assert time.monotonic() - started < DEADLINE + MARGIN
    assert until(lambda: outcome_of(world.store)[0] == "done", 5)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_was_forked_during_the_first_connections_waits_for_none(world):
    """Every lock is held by a thread that is not there in the child."""

    def waits_for_none():
        world.resolver.answer()
        outcome, took = outcome_of(world.store)
        return outcome == "done" and took < DEADLINE / 4 + MARGIN

    as_new(world)
    with world.resolver.hanging():
        node = next(iter(world.store._deployment._nodes()))
        locks = [link.names._lock, node._breaker._lock, node._replicas_breaker._lock]
        if world.name == "tls":
            locks.append(node.connect.__self__._class.tls._making)
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            assert is_true_in_a_child(waits_for_none)


class Scene:
    def __init__(self, world):
        self.store, self._world, self._fault = world.store, world, contextlib.ExitStack()

    def begin(self, place):
        self._fault.enter_context(FAULTS[place](self._world))

    def end(self):
        self._fault.close()


class FullMemory:
    """A store in memory, which is full now and then."""

    def __init__(self):
        self.store = MemoryStore(max_entries=1_000_000)

    def begin(self, _):
        self.store._max_entries = 1

    def end(self):
        self.store._max_entries = 1_000_000


SOAKS = {
    "alone": ("name hangs", "addresses are dead", "frozen", "frozen at the handshake"),
    "tls": ("name hangs", "addresses are dead", "frozen", "frozen at the handshake"),
    "sentinel": ("name hangs", "addresses are dead", "frozen", "frozen at the handshake"),
    "cluster": ("frozen",),  # the other faults take its table of slots away
}


def assert_nothing_is_lost(found, record_property):
    record_property("report", str(found))
    assert found["lost"] == [], found
    assert found["doubled"] == [], found
    assert found["acknowledged"] > CALLERS, found
    assert sum(found["faults"].values()) > 0, found  # some are shorter than the deadline


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_is_acknowledged_was_done_once_while_faults_come_and_go(world, record_property):
    found = Soak(Scene(world), SECONDS, SOAKS[world.name]).run()
    assert_nothing_is_lost(found, record_property)
    assert found["longest"] < DEADLINE + MARGIN + found["lag"], found


@pytest.mark.skipif("gevent" in sys.modules, reason="without a wait no other greenlet runs")
def test_what_a_full_store_in_memory_acknowledges_was_done_once(record_property):
    assert_nothing_is_lost(Soak(FullMemory(), SECONDS, ["full"]).run(), record_property)
