"""One store on every topology: one server, sentinels."""

import time

import pytest
from helpers.servers.faults import Proxy, SilentServer
from helpers.servers.processes import HOST, RedisServer, free_port
from helpers.servers.topologies import SERVICE, Sentinel
from helpers.store_assertions import claim, timed_failure, works
from redis.sentinel import Sentinel as SentinelManager

from flask_idempotence import RedisStore
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import Claimed
from flask_idempotence.testing import StoreContract

pytestmark = pytest.mark.topology


class TestSentinelContract(StoreContract):
    @pytest.fixture
    def store(self, sentinel_group):
        sentinel_group.flush()
        return open_store(sentinel_group.url, {})


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

    def test_the_address_that_a_client_forces_is_connected_to(self, sentinel_group):
        """Sentinels tell the port; on that address of loopback nothing listens."""
        manager = SentinelManager(sentinel_group.addresses, force_master_ip="127.0.0.2")
        with manager.master_for(SERVICE) as client:
            error, _ = timed_failure(RedisStore(client).ping)
        assert not error.sent
        assert any(text in str(error) for text in ("127.0.0.2", "timed out", "Timeout"))

    def test_an_unknown_service_is_a_store_that_does_not_answer(self, sentinel_group):
        url = sentinel_group.url.replace(SERVICE, "bakery")
        error, took = timed_failure(open_store(url, {}).ping)
        assert "'bakery'" in str(error)
        assert not error.sent
        assert took < 10

    def test_dead_and_silent_sentinels_are_passed_over_within_the_deadline(self, sentinel_group):
        host, port = sentinel_group.addresses[0]
        with SilentServer() as silent:
            hosts = f"{silent.address},{HOST}:{free_port()},{host}:{port}"
            store = open_store(f"redis+sentinel://{hosts}/{SERVICE}", {"deadline": 4})
            started = time.monotonic()
            store.ping()
            assert time.monotonic() - started > 0.75  # a share of the deadline
            store._deployment._node.drop_idle()
            started = time.monotonic()
            store.ping()  # the one that answered is asked first
            assert time.monotonic() - started < 0.75

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


def test_a_name_that_leads_elsewhere_by_now_is_followed(redis_server, redis_url):
    """As with the address of a managed service, after a failover behind it."""
    with RedisServer() as other, Proxy(redis_server) as proxy:
        store = open_store(proxy.url, {})
        store.put_token("t", b"", 60)
        claim(store, "other")
        behind = redis_server.client()
        behind.replicaof(HOST, other.port)
        try:
            proxy.lead_to(other)
            assert claim(store) == Claimed()  # the replica has turned its script away
            store.put_token("t", b"", 60)
            assert other.client().get("t") == b"T"
            assert other.client().exists("k")
        finally:
            behind.replicaof("NO", "ONE")
