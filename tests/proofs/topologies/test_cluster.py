"""One store on a cluster."""

import threading
import time

import pytest
import redis
from helpers.keeper_harness import KeeperHarness
from helpers.servers.faults import SilentServer
from helpers.servers.processes import HOST
from helpers.servers.topologies import Cluster
from helpers.store_assertions import assert_fork_safe, claim, owner, timed_failure, works
from redis.cluster import ClusterNode
from redis.exceptions import ResponseError, TryAgainError

from flask_idempotence import RedisStore
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Outcome, Renewal, Running
from flask_idempotence.stores.redis.cluster import Cluster as ClusterDeployment
from flask_idempotence.stores.redis.node import Node
from flask_idempotence.testing import StoreContract, record_signals

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


def spread(cluster, count=30):
    keys = [f"key {number}" for number in range(count)]
    assert len({cluster.owner(key).port for key in keys}) == cluster.PRIMARIES
    return keys


class TestCluster:
    @pytest.mark.parametrize("decode", [False, True], ids=["bytes", "decoded"])
    def test_a_ready_client_will_do(self, cluster, decode):
        cluster.flush()
        seeds = [ClusterNode(HOST, cluster.nodes[0].port)]
        with redis.RedisCluster(startup_nodes=seeds, decode_responses=decode) as client:
            store = RedisStore(client)
        for key in spread(cluster):
            assert claim(store, key) == Claimed()
            assert isinstance(claim(store, key), Running)

    def test_a_ready_client_from_a_url_and_with_resp3_will_do(self, cluster):
        cluster.flush()
        url = f"redis://{HOST}:{cluster.nodes[0].port}?protocol=3"
        with redis.RedisCluster.from_url(url) as client:
            store = RedisStore(client)
        works(store)

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
        slot, source = cluster.slot("t"), cluster.owner("t")
        target = next(node for node in cluster.primaries if node is not source)
        source.client().delete("t")
        cluster.move(slot, source, target)
        try:
            calls = Calls(target, "set")
            clustered.put_token("t", b"", 60)
            assert calls.made() == 1
            assert clustered.take_token("t", b"").name == "TAKEN"
        finally:
            cluster.move(slot, target, source)

    def test_a_slot_on_its_way_is_asked_for_at_both_ends(self, cluster, clustered):
        here, gone = owner(), owner()
        key = "k"
        slot, source = cluster.slot(key), cluster.owner(key)
        target = next(node for node in cluster.primaries if node is not source)
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
        assert 0.5 < took < 1.2
        back = threading.Timer(0.3, lambda: cluster.end_move(slot, source))
        back.start()
        try:
            assert claim(clustered) == Claimed()
        finally:
            back.join()
            assert wait_until_whole(cluster)

    def test_renewals_are_one_round_trip_a_node(self, cluster, clustered, monkeypatch):
        keys, mine = spread(cluster), owner()
        for key in keys:
            clustered.claim(key, mine, NO_FINGERPRINT, 5, 0)
        renewals = [Renewal(key, mine, 50) for key in keys]
        clustered.renew(renewals)  # now every node knows the script
        trips, exchange = [], Node.exchange

        def counted(node, commands, *arguments, **options):
            trips.append(len(commands))
            return exchange(node, commands, *arguments, **options)

        monkeypatch.setattr(Node, "exchange", counted)
        renewals[7] = renewals[7]._replace(owner=owner())
        wanted = [Outcome.OK] * len(keys)
        wanted[7] = Outcome.STALE
        assert clustered.renew(renewals) == wanted
        assert len(trips) == cluster.PRIMARIES
        assert sum(trips) == len(keys)

    def test_one_node_that_forgot_the_scripts_is_sent_them_again(self, cluster, clustered):
        keys, mine = spread(cluster), owner()
        for key in keys:
            clustered.claim(key, mine, NO_FINGERPRINT, 5, 0)
        renewals = [Renewal(key, mine, 50) for key in keys]
        clustered.renew(renewals)
        cluster.primaries[1].client().script_flush()
        assert clustered.renew(renewals) == [Outcome.OK] * len(keys)

    def test_moved_keys_in_a_batch_are_followed_one_by_one(self, cluster, clustered):
        keys, mine = spread(cluster), owner()
        for key in keys:
            clustered.claim(key, mine, NO_FINGERPRINT, 5, 0)
        moving = keys[3]
        slot, source = cluster.slot(moving), cluster.owner(moving)
        target = next(node for node in cluster.primaries if node is not source)
        move(cluster, moving, slot, source, target)
        try:
            renewals = [Renewal(key, mine, 50) for key in keys]
            assert clustered.renew(renewals) == [Outcome.OK] * len(keys)
        finally:
            move(cluster, moving, slot, target, source)

    def test_every_primary_answers_a_ping(self, clustered):
        clustered.ping()

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_child_process_makes_connections_of_its_own(self, clustered):
        assert_fork_safe(clustered)

    def test_nodes_that_are_all_silent_cost_no_more_than_the_deadline(self):
        with SilentServer() as one, SilentServer() as two:
            store = open_store(f"redis+cluster://{one.address},{two.address}", {"deadline": 0.4})
            error, took = timed_failure(lambda: claim(store))
        assert not error.sent
        assert took < 0.7

    def test_try_again_waits_and_asks_the_same_node(self):
        node = Node(lambda: None)
        nodes = ClusterDeployment([(HOST, 1)], lambda host, port: None)
        for error in (ResponseError("TRYAGAIN later"), TryAgainError("later")):
            target = nodes._redirect(node, error, 0)
            assert target.node is node
            assert target.pause > 0
        assert nodes._redirect(node, ResponseError("WRONGTYPE"), 0) is None


def move(cluster, key, slot, source, target):
    cluster.begin_move(slot, source, target)
    source.call("MIGRATE", HOST, target.port, key, 0, 1000)
    cluster.end_move(slot, target)


def wait_until_whole(cluster):
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if cluster.is_whole():
            return True
        time.sleep(0.05)
    return False


class Calls:
    def __init__(self, server, command):
        self._server, self._command = server, f"cmdstat_{command}"
        server.client().config_resetstat()

    def made(self):
        stats = self._server.client().info("commandstats")
        return stats.get(self._command, {"calls": 0})["calls"]


@pytest.fixture
def fresh_cluster():
    with Cluster() as nodes:
        yield nodes


def test_a_silent_node_keeps_no_other_leases_from_being_renewed(fresh_cluster):
    cluster = fresh_cluster
    store = open_store(cluster.url, {})
    keys, mine = spread(cluster), owner()
    for key in keys:
        assert store.claim(key, mine, NO_FINGERPRINT, 20, 0) == Claimed()
    silent = cluster.owner(keys[0])
    owners = {key: cluster.owner(key) for key in keys}
    silent.pause()
    error, took = timed_failure(lambda: store.renew([Renewal(key, mine, 500) for key in keys]))
    assert error.sent
    assert took < 1.2
    others = [key for key in keys if owners[key] is not silent]
    assert all(owners[key].client().ttl(key) > 400 for key in others)
    assert error.answers == [None if owners[key] is silent else Outcome.OK for key in keys]


def test_the_keeper_goes_by_what_the_other_nodes_say(fresh_cluster):
    cluster = fresh_cluster
    harness = KeeperHarness(open_store(cluster.url, {"deadline": 3}), lease=500)
    keys = spread(cluster)
    holds = {key: harness.hold(key, lease=20) for key in keys}
    for key, hold in holds.items():
        assert harness.store.claim(key, hold.owner, NO_FINGERPRINT, 20, 0) == Claimed()
    silent = cluster.owner(keys[0])
    owners = {key: cluster.owner(key) for key in keys}
    gone = next(key for key in keys if owners[key] is not silent)
    harness.store.remove(gone)
    silent.pause()
    with record_signals(harness.app) as signals:
        harness.pass_time(10, step=10)
    assert signals.count("store_failed") == 1
    assert [key for key in keys if holds[key].lost] == [gone]
    for key in set(keys) - {gone}:
        assert holds[key].lease.length == (20 if owners[key] is silent else 500)
