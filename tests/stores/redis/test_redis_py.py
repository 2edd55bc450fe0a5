"""The two methods of redis-py that are overridden, and its settings, on the oldest and newest."""

import inspect
import time

import pytest
import redis
from helpers.servers.faults import SilentServer
from helpers.servers.processes import HOST
from helpers.store_assertions import works
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import RedisError, ResponseError
from redis.sentinel import Sentinel

from flask_idempotence import RedisStore, StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.redis.link import (
    ConnectionFactory,
    deadline,
    error_code,
    pack,
)

RESPS = pytest.mark.parametrize("resp", [2, 3])


def link_of(client):
    deadline.begin(5)
    return ConnectionFactory(client.connection_pool).connect()


@pytest.mark.parametrize("kind", [Connection, SSLConnection, UnixDomainSocketConnection])
def test_each_kind_of_connection_makes_its_socket_in_the_method_that_is_overridden(kind):
    assert list(inspect.signature(kind._connect).parameters) == ["self"]


def test_tls_is_put_around_a_socket_in_the_method_that_is_overridden():
    parameters = inspect.signature(SSLConnection._wrap_socket_with_ssl).parameters
    assert list(parameters) == ["self", "sock"]


@RESPS
def test_every_wait_of_a_connection_goes_through_the_socket_with_the_deadline(redis_server, resp):
    for client in (
        redis_server.client(protocol=resp),
        redis.Redis.from_url(redis_server.unix_url, protocol=resp),
    ):
        link = link_of(client)
        assert link._sock is link.over
        pong, error = link.exchange(pack("PING") + pack("NONSENSE"), 2)
        assert pong == b"PONG"
        assert isinstance(error, ResponseError)
        with deadline.limit(0.1), pytest.raises(redis.TimeoutError):
            link.exchange(pack("BLPOP", "nothing", 0), 1)
        link.disconnect()


def test_the_protocol_is_the_older_one_unless_the_client_says_otherwise(redis_server):
    for settings, protocol in (({}, 2), ({"protocol": 3}, 3), ({"protocol": 2}, 2)):
        link = link_of(redis_server.client(**settings))
        assert link.get_protocol() == protocol
        link.disconnect()


def test_a_connection_costs_no_round_trip_before_its_first_command(fresh_redis):
    with fresh_redis.client() as behind:
        behind.config_resetstat()
        open_store(fresh_redis.url, {}).ping()
        sent = {name for name in behind.info("commandstats") if name.startswith("cmdstat_")}
    assert sent <= {"cmdstat_ping", "cmdstat_config|resetstat", "cmdstat_config", "cmdstat_info"}


def test_a_handshake_has_the_deadline_too():
    with SilentServer() as server:
        store = open_store(f"{server.url}?protocol=3", {"deadline": 0.3})
        started = time.monotonic()
        with pytest.raises(StoreError):
            store.ping()
        assert time.monotonic() - started < 0.6


@RESPS
def test_a_pool_leaves_nothing_behind_in_our_connections(redis_server, redis_url, resp):
    client = redis_server.client(protocol=resp, decode_responses=True)
    client.ping()
    link = link_of(client)
    notifications = getattr(link, "maint_notifications_config", None)
    assert not notifications or not notifications.enabled  # they would relax the time-outs
    assert link.retry._retries == 0
    link.disconnect()
    works(RedisStore(client))


def test_a_context_of_tls_is_made_without_a_handshake(tls_server):
    uri = f"rediss://{HOST}:{tls_server.port}/0?ssl_ca_certs={tls_server.ca}"
    store = open_store(uri, {"deadline": 5})
    store.ping()
    [connection] = store._deployment._node._idle
    tls = store._deployment._node.connect.__self__._class.tls
    assert tls._made[1] is connection.over.context


@pytest.mark.parametrize(
    "line",
    [
        *("MOVED 7 127.0.0.1:7001", "ASK 7 127.0.0.1:7001", "TRYAGAIN later", "CLUSTERDOWN x"),
        *("READONLY x", "NOPERM x", "NOSCRIPT x", "OOM x", "MASTERDOWN x", "CROSSSLOT x"),
        *("WRONGTYPE x", "MISCONF x", "NOREPLICAS x", "BUSY x"),
    ],
)
def test_the_code_of_an_error_is_found_with_a_class_and_without(line):
    parser = Connection(protocol=2)._parser
    for error in (parser.parse_error(line), ResponseError(line)):
        assert isinstance(error, RedisError)
        assert error_code(error) == line.split()[0]
        assert str(error).split()[-1] == line.split()[-1]


def test_a_client_of_sentinels_tells_whom_it_asks():
    manager = Sentinel([(HOST, 1)], force_master_ip="192.0.2.1")
    store = RedisStore(manager.master_for("shop"))
    service = store._deployment
    [sentinel] = service._manager.sentinels
    assert sentinel._connect.__self__.make().port == 1
    service._manager.sentinels = [Names("10.0.0.1", 6379)]
    assert service._manager.discover_master("shop") == ("192.0.2.1", 6379)


class Names:
    """A sentinel that names this primary."""

    def __init__(self, ip, port):
        healthy = {"is_master": True, "is_sdown": False, "is_odown": False}
        self._state = {"ip": ip, "port": port, "num-other-sentinels": 0, **healthy}

    def sentinel_masters(self):
        return {"shop": self._state}
