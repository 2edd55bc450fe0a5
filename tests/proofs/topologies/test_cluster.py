"""One store on a cluster."""

import threading

import pytest
import redis
from helpers.servers.faults import SilentServer
from helpers.servers.processes import HOST, until
from helpers.servers.topologies import Cluster
from helpers.store_assertions import assert_fork_safe, claim, owner, timed_failure, works
from redis.cluster import ClusterNode

from flask_idempotence import RedisStore
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Outcome, Renewal, Running
from flask_idempotence.stores.redis.link import pack
from flask_idempotence.stores.redis.node import Node
from flask_idempotence.testing import StoreContract

pytestmark = pytest.mark.topology


class TestClusterContract(StoreContract):
    @pytest.fixture
    def store(self, cluster):
        cluster.flush()
        return open_store(cluster.url, {})


@pytest.fixture
def clustered(cluster):
    cluster.flush()
    return open_store(cluster.url, {})


@pytest.fixture
def trips(monkeypatch):
    ports, exchange = [], Node.exchange

    def noted(node, commands, *arguments, **options):
        if commands != [pack("CLUSTER", "SLOTS")]:
            ports.append(node.connect.keywords["port"])
        return exchange(node, commands, *arguments, **options)

    monkeypatch.setattr(Node, "exchange", noted)
    return ports


def spread(cluster):
    keys = [f"key {number}" for number in range(30)]
    assert len({cluster.owner(key).port for key in keys}) == cluster.PRIMARIES
    return keys


def places(cluster, key):
    source = cluster.owner(key)
    target = next(node for node in cluster.primaries if node is not source)
    return cluster.slot(key), source, target


class TestCluster:
    @pytest.mark.parametrize("options", [{}, {"decode_responses": True, "protocol": 3}])
    def test_a_ready_client_will_do(self, cluster, options):
        cluster.flush()
        url = f"redis://{HOST}:{cluster.nodes[0].port}"
        with redis.RedisCluster.from_url(url, **options) as client:
            store = RedisStore(client)
        for key in spread(cluster):
            assert claim(store, key) == Claimed()
            assert isinstance(claim(store, key), Running)

    def test_a_ready_client_that_translates_addresses_will_do(self, cluster):
        cluster.flush()
        asked = []

        def remap(address):
            asked.append(address)
            return (HOST, address[1])

        seeds = [ClusterNode(HOST, cluster.nodes[0].port)]
        with redis.RedisCluster(startup_nodes=seeds, address_remap=remap) as client:
            store = RedisStore(client)
        asked.clear()
        works(store)
        assert {port for _, port in asked} >= {node.port for node in cluster.primaries}

    def test_a_token_follows_its_slot_and_is_sent_once(self, cluster, clustered):
        clustered.put_token("t", b"", 60)  # now it knows the table
        slot, source, target = places(cluster, "t")
        source.client().delete("t")
        cluster.move(slot, source, target)
        try:
            behind = target.client()
            behind.config_resetstat()
            clustered.put_token("t", b"", 60)
            assert behind.info("commandstats")["cmdstat_set"]["calls"] == 1
            assert clustered.take_token("t", b"").name == "TAKEN"
        finally:
            cluster.move(slot, target, source)

    def test_a_slot_on_its_way_is_asked_for_at_both_ends(self, cluster, clustered):
        here, gone = owner(), owner()
        key = "k"
        slot, source, target = places(cluster, key)
        assert clustered.claim(key, here, NO_FINGERPRINT, 10, 0) == Claimed()
        cluster.begin_move(slot, source, target)
        try:
            assert isinstance(claim(clustered, key), Running)  # it has not gone yet
            source.call("MIGRATE", HOST, target.port, key, 0, 1000)
            assert isinstance(claim(clustered, key), Running)
            assert clustered.renew([Renewal(key, here, 20)]) == [Outcome.OK]
            assert clustered.release(key, here) is Outcome.OK
            assert clustered.claim(key, gone, NO_FINGERPRINT, 10, 0) == Claimed()
            clustered.release(key, gone)
        finally:
            target.call("CLUSTER", "SETSLOT", slot, "STABLE")
            source.call("CLUSTER", "SETSLOT", slot, "STABLE")

    def test_a_cluster_that_is_down_is_waited_for_within_the_deadline(self, cluster, clustered):
        claim(clustered, "other")
        slot, source = cluster.slot("k"), cluster.owner("k")
        for node in cluster.primaries:
            node.call("CLUSTER", "DELSLOTS", slot)
        _, took = timed_failure(lambda: claim(clustered))
        assert 0.5 < took < 10
        clustered._deadline = 10
        back = threading.Timer(0.3, lambda: cluster.end_move(slot, source))
        back.start()
        try:
            assert claim(clustered) == Claimed()
        finally:
            back.join()
            assert until(cluster.is_whole)

    @pytest.fixture
    def renewals(self, cluster, clustered):
        """Of claims on every node, each of which knows the script."""
        keys, mine = spread(cluster), owner()
        for key in keys:
            clustered.claim(key, mine, NO_FINGERPRINT, 5, 0)
        renewals = [Renewal(key, mine, 50) for key in keys]
        clustered.renew(renewals)
        return renewals

    def test_renewals_are_one_round_trip_a_node(self, cluster, clustered, renewals, trips):
        renewals[7] = renewals[7]._replace(owner=owner())
        wanted = [Outcome.OK] * len(renewals)
        wanted[7] = Outcome.STALE
        assert clustered.renew(renewals) == wanted
        assert sorted(trips) == sorted(node.port for node in cluster.primaries)

    def test_one_node_without_the_scripts_is_sent_them(self, cluster, clustered, renewals):
        cluster.primaries[1].client().script_flush()
        assert clustered.renew(renewals) == [Outcome.OK] * len(renewals)

    def test_moved_keys_in_a_batch_are_followed_one_by_one(self, cluster, clustered, renewals):
        moving = renewals[3].key
        slot, source, target = places(cluster, moving)
        move(cluster, moving, slot, source, target)
        try:
            assert clustered.renew(renewals) == [Outcome.OK] * len(renewals)
        finally:
            move(cluster, moving, slot, target, source)

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_child_process_makes_connections_of_its_own(self, clustered):
        assert_fork_safe(clustered)

    def test_nodes_that_are_all_silent_cost_no_more_than_the_deadline(self):
        with SilentServer() as one, SilentServer() as two:
            store = open_store(f"redis+cluster://{one.address},{two.address}", {"deadline": 0.4})
            error, took = timed_failure(lambda: claim(store))
        assert not error.sent
        assert took < 10


def move(cluster, key, slot, source, target):
    cluster.begin_move(slot, source, target)
    source.call("MIGRATE", HOST, target.port, key, 0, 1000)
    cluster.end_move(slot, target)


def test_a_silent_node_keeps_no_other_leases_from_being_renewed():
    with Cluster() as cluster:
        store = open_store(cluster.url, {})
        keys, mine = spread(cluster), owner()
        for key in keys:
            assert store.claim(key, mine, NO_FINGERPRINT, 20, 0) == Claimed()
        owners = {key: cluster.owner(key) for key in keys}
        silent = owners[keys[0]]
        silent.pause()
        error, took = timed_failure(lambda: store.renew([Renewal(key, mine, 500) for key in keys]))
        assert error.sent
        assert took < 10
        assert error.answers == [None if owners[key] is silent else Outcome.OK for key in keys]
        others = [key for key in keys if owners[key] is not silent]
        assert all(owners[key].client().ttl(key) > 400 for key in others)


@pytest.fixture
def warm(cluster):
    """A store that knows the table of slots, and each of whose nodes knows the scripts."""
    cluster.flush()
    store = open_store(cluster.url, {})
    for node in cluster.primaries:
        key = next(key for key in map(str, range(100)) if cluster.owner(key) is node)
        for _, operation in OPERATIONS:
            operation(store, key, owner())
    cluster.flush()
    return store


OPERATIONS = [
    ("claim", lambda store, key, mine: store.claim(key, mine, NO_FINGERPRINT, 10, 0)),
    ("claim again", lambda store, key, mine: claim(store, key)),
    ("renew", lambda store, key, mine: store.renew([Renewal(key, mine, 10)])),
    ("complete", lambda store, key, mine: store.complete(key, mine, NO_FINGERPRINT, b"", 10)),
    ("peek", lambda store, key, mine: store.peek(key)),
    ("release", lambda store, key, mine: store.release(key, mine)),
    ("put_token", lambda store, key, mine: store.put_token(key, b"", 10)),
    ("discard", lambda store, key, mine: store.discard([(key, store.peek(key))])),
    ("put_token", lambda store, key, mine: store.put_token(key, b"", 10)),
    ("take_token", lambda store, key, mine: store.take_token(key, b"")),
    ("remove", lambda store, key, mine: store.remove(key)),
]


def test_each_operation_is_one_round_trip_to_the_node_of_its_key(cluster, warm, trips):
    for node in cluster.primaries:
        key = next(key for key in map(str, range(100)) if cluster.owner(key) is node)
        mine = owner()
        for name, operation in OPERATIONS:
            trips.clear()
            operation(warm, key, mine)
            calls = 2 if name == "discard" else 1  # its own, and that of the look before it
            assert (name, trips) == (name, [node.port] * calls)


def test_all_servers_are_asked_for_their_facts_keys_and_number(cluster, warm, trips):
    ports = {node.port for node in cluster.primaries}
    for number in range(30):
        claim(warm, f"p:{number}")
    trips.clear()
    assert len(warm.facts()) == len(ports)
    assert set(trips) == ports
    assert {*warm.scan("p:")} == {f"p:{number}" for number in range(30)}
    assert warm.clear("p:") == 30
    assert len([*warm.scan("")]) == 0


def test_one_moved_slot_renews_the_whole_table(cluster, warm, trips):
    source, target, *_ = cluster.primaries
    first, second = [key for key in map(str, range(100)) if cluster.owner(key) is source][:2]
    slots = cluster.slot(first), cluster.slot(second)
    for slot in slots:
        cluster.move(slot, source, target)
    try:
        assert claim(warm, first) == Claimed()  # is redirected
        assert source.port in trips
        trips.clear()
        assert claim(warm, second) == Claimed()
        assert trips == [target.port]  # and is not
    finally:
        warm.remove(first)
        warm.remove(second)
        for slot in slots:
            cluster.move(slot, target, source)
