"""One store on every topology: one server, sentinels, a cluster."""

import os
import signal
import threading
import time

import pytest
import redis
from redis.cluster import ClusterNode
from redis.exceptions import ResponseError
from redis.sentinel import Sentinel as SentinelManager
from servers import HOST, Proxy, RedisServer, SilentServer, free_port
from topologies import SERVICE, Cluster, Sentinel

from flask_idempotence import ConfigurationError, RedisStore, StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Outcome, Renewal, Running
from flask_idempotence.stores.redis_link import cluster as cluster_module
from flask_idempotence.stores.redis_link.node import Node
from flask_idempotence.testing import StoreContract


def owner():
    return os.urandom(16)


def claim(store, key="k", lease=10):
    return store.claim(key, owner(), NO_FINGERPRINT, lease, 0)


def timed_failure(call):
    started = time.monotonic()
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value, time.monotonic() - started


def works(store):
    mine = owner()
    assert store.claim("k", mine, NO_FINGERPRINT, 10, 0) == Claimed()
    assert store.renew([Renewal("k", mine, 10)]) == [Outcome.OK]
    assert store.release("k", mine) is Outcome.OK


class TestSentinelContract(StoreContract):
    @pytest.fixture
    def store(self, sentinel_group):
        sentinel_group.flush()
        return open_store(sentinel_group.url, {})


class TestClusterContract(StoreContract):
    @pytest.fixture
    def store(self, cluster):
        cluster.flush()
        return open_store(cluster.url, {})


class TestUnixSocketContract(StoreContract):
    @pytest.fixture
    def store(self, redis_server, redis_url):
        return open_store(redis_server.unix_url, {})


class TestSentinels:
    def test_a_ready_client_of_the_primary_will_do(self, sentinel_group):
        sentinel_group.flush()
        manager = SentinelManager(sentinel_group.addresses)
        with manager.master_for(SERVICE, decode_responses=True) as client:
            works(RedisStore(client))
            assert client.connection_pool._created_connections == 0  # its own are not used

    def test_a_ready_client_of_the_replicas_will_not(self, sentinel_group):
        manager = SentinelManager(sentinel_group.addresses)
        with (
            manager.slave_for(SERVICE) as client,
            pytest.raises(ConfigurationError, match="master_for"),
        ):
            RedisStore(client)

    def test_the_database_of_the_uri_is_taken(self, sentinel_group):
        sentinel_group.flush()
        claim(open_store(sentinel_group.url.removesuffix("/0") + "/3", {}))
        assert sentinel_group.primary.client(db=3).keys() == [b"k"]

    def test_an_unknown_service_is_a_store_that_does_not_answer(self, sentinel_group):
        url = sentinel_group.url.replace(SERVICE, "bakery")
        error, took = timed_failure(open_store(url, {}).ping)
        assert "'bakery'" in str(error)
        assert not error.sent
        assert took < 0.5

    def test_dead_and_silent_sentinels_are_passed_over_within_the_deadline(self, sentinel_group):
        host, port = sentinel_group.addresses[0]
        with SilentServer() as silent:
            hosts = f"{silent.address},{HOST}:{free_port()},{host}:{port}"
            store = open_store(f"redis+sentinel://{hosts}/{SERVICE}", {"deadline": 0.8})
            started = time.monotonic()
            store.ping()
            assert 0.15 < time.monotonic() - started < 0.5
            store._link._topology._node.drop_idle()
            started = time.monotonic()
            store.ping()  # the one that answered is asked first
            assert time.monotonic() - started < 0.1

    def test_sentinels_that_are_all_silent_cost_no_more_than_the_deadline(self):
        with SilentServer() as one, SilentServer() as two:
            url = f"redis+sentinel://{one.address},{two.address}/{SERVICE}"
            error, took = timed_failure(open_store(url, {"deadline": 0.4}).ping)
        assert not error.sent
        assert took < 0.7

    def test_a_sentinel_that_names_a_replica_is_not_believed(self, sentinel_group):
        sentinel_group.flush()
        replica = next(s for s in sentinel_group.servers if s is not sentinel_group.primary)
        with Sentinel(replica, quorum=1) as misled:
            hosts = [(HOST, misled.port), *sentinel_group.addresses]
            told = ",".join(f"{host}:{port}" for host, port in hosts)
            works(open_store(f"redis+sentinel://{told}/{SERVICE}", {}))
            alone = open_store(f"redis+sentinel://{HOST}:{misled.port}/{SERVICE}", {})
            error, _ = timed_failure(alone.ping)
        assert "no primary" in str(error)

    def test_a_user_who_may_not_ask_for_the_role_may_go_on(self, sentinel_group):
        sentinel_group.flush()
        behind = sentinel_group.primary.client()
        behind.execute_command("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-role")
        try:
            works(open_store(sentinel_group.url.replace("://", "://app:secret@"), {}))
            wrong = open_store(sentinel_group.url.replace("://", "://app:wrong@"), {})
            error, _ = timed_failure(wrong.ping)
        finally:
            behind.acl_deluser("app")
        assert not error.sent

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_child_process_makes_connections_of_its_own(self, sentinel_group):
        assert_fork_safe(open_store(sentinel_group.url, {}))


def assert_fork_safe(store):
    def connections():
        ids = []
        for node in store._link.primaries():
            ids += store._link.send([("CLIENT", "ID")], node=node)
        return ids

    ours = connections()
    assert connections() == ours
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        os._exit(1 if set(connections()) & set(ours) else 0)
    assert os.waitpid(child, 0)[1] == 0


class TestOneServer:
    def test_a_name_that_leads_elsewhere_by_now_is_followed(self, redis_server, redis_url):
        """As with the address of a managed service, after a failover behind it."""
        with RedisServer() as other, Proxy(redis_server) as proxy:
            store = open_store(proxy.url, {})
            store.put_token("t", b"", 60)
            behind = redis_server.client()
            behind.replicaof(HOST, other.port)
            try:
                proxy.lead_to(other)
                store.put_token("t", b"", 60)
                assert other.client().get("t") == b"T"
                assert store.take_token("t", b"").name == "TAKEN"
            finally:
                behind.replicaof("NO", "ONE")

    def test_a_script_on_a_replica_is_turned_away_and_follows_too(self, redis_server, redis_url):
        with RedisServer() as other, Proxy(redis_server) as proxy:
            store = open_store(proxy.url, {})
            claim(store, "other")
            behind = redis_server.client()
            behind.replicaof(HOST, other.port)
            try:
                proxy.lead_to(other)
                assert claim(store) == Claimed()
                assert other.client().exists("k")
            finally:
                behind.replicaof("NO", "ONE")


@pytest.fixture
def clustered(cluster):
    cluster.flush()
    return open_store(cluster.url, {})


def spread(cluster, count=30):
    """Return keys that lie on all primaries."""
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

    def test_a_token_follows_its_slot_and_is_sent_once(self, cluster, clustered):
        clustered.put_token("t", b"", 60)  # now it knows the table
        slot, source = cluster.slot("t"), cluster.owner("t")
        target = next(node for node in cluster.primaries if node is not source)
        source.client().delete("t")
        cluster.end_move(slot, target)
        try:
            calls = Calls(target, "set")
            clustered.put_token("t", b"", 60)
            assert calls.made() == 1
            assert clustered.take_token("t", b"").name == "TAKEN"
        finally:
            cluster.end_move(slot, source)

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

        def counted(node, connection, commands, quorum=None):
            trips.append(len(commands))
            return exchange(node, connection, commands, quorum)

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
        nodes = cluster_module.Cluster([(HOST, 1)], lambda host, port: None, lambda at: at)
        for error in (ResponseError("TRYAGAIN later"), cluster_module.TryAgainError("later")):
            detour = nodes.detour(node, error, 0)
            assert detour.node is node
            assert detour.pause > 0
        assert nodes.detour(node, ResponseError("WRONGTYPE"), 0) is None


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
    """How often a server was sent a command since."""

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


class TestUris:
    @pytest.mark.parametrize(
        "uri",
        [
            "redis+sentinel://a,b:1/shop",
            "redis+sentinel://user:p%40ss@a:26379,[::1]:2/shop/3",
            "rediss+sentinel://a/shop/0?ssl_cert_reqs=none",
            "valkey+sentinel://a/shop",
            "redis+cluster://a,b:7001",
            "rediss+cluster://user:pass@a,[::1]:2/0",
            "valkeys+cluster://a/?socket_keepalive=true",
            "redis://a/0?deadline=0.5&wait_replicas=2",
        ],
    )
    def test_they_are_read_without_connecting(self, uri):
        assert isinstance(open_store(uri, {}), RedisStore)

    @pytest.mark.parametrize(
        "uri",
        [
            "redis+sentinel://hunter2",
            "redis+sentinel:///shop",
            "redis+sentinel://a,,b/shop",
            "redis+sentinel://a:hunter2/shop",
            "redis+cluster://",
            "redis+cluster://:hunter2/x@a",
            "redis://a/0?wait_replicas=hunter2",
            "redis://a/0?deadline=hunter2",
        ],
    )
    def test_those_that_cannot_be_read_are_refused_and_not_repeated(self, uri):
        with pytest.raises(ConfigurationError, match="cannot be read") as caught:
            open_store(uri, {})
        assert "hunter2" not in str(caught.value)

    def test_a_cluster_has_one_database(self):
        with pytest.raises(ConfigurationError, match="only the database 0"):
            open_store("redis+cluster://a/1", {})

    @pytest.mark.parametrize("uri", ["redis+sentinel://a/shop", "redis+cluster://a"])
    def test_an_unknown_option_is_refused(self, uri):
        with pytest.raises(ConfigurationError, match="unheard_of"):
            open_store(uri, {"unheard_of": 1})

    @pytest.mark.parametrize(
        "options", [{"deadline": 0}, {"deadline": "1"}, {"wait_replicas": -1}]
    )
    def test_numbers_that_make_no_sense_are_refused(self, options):
        with pytest.raises(ConfigurationError, match=next(iter(options))):
            open_store("redis://a", options)

    def test_what_the_uri_says_wins(self):
        store = open_store("redis://a?deadline=0.5", {"deadline": 2, "wait_replicas": 1})
        assert (store._link.seconds, store._wait_replicas) == (0.5, 1)

    def test_every_setting_of_the_uri_reaches_the_connections(self):
        uri = "rediss+sentinel://u:p%40ss@a/shop/3?ssl_cert_reqs=none"
        sentinel_kwargs = {"username": "watch", "password": "dog"}
        topology = open_store(uri, {"sentinel_kwargs": sentinel_kwargs})._link._topology
        make = topology._connect_to.__closure__[0].cell_contents
        connection = make(host="h", port=1)
        assert isinstance(connection, redis.SSLConnection)
        assert (connection.username, connection.password, connection.db) == ("u", "p@ss", 3)
        sentinel = topology._sentinels[0]._connect.args[0]()
        assert isinstance(sentinel, redis.SSLConnection)
        assert (sentinel.username, sentinel.password, sentinel.db) == ("watch", "dog", 0)
        assert (sentinel.host, sentinel.port) == ("a", 26379)
