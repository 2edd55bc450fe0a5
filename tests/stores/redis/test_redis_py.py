"""redis-py's private names, run on the oldest and the newest release."""

import inspect
import time
from types import SimpleNamespace

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
from flask_idempotence.stores.redis.connection import wire
from flask_idempotence.stores.redis.connection.factory import ConnectionFactory
from flask_idempotence.stores.redis.connection.handshake import _DeadlinedSocket
from flask_idempotence.stores.redis.connection.replies import error_code
from flask_idempotence.stores.redis.connection.wire import deadline, pack

RESPS = pytest.mark.parametrize("resp", [2, 3])


def handshake_of(client):
    """Return the handshake of a connection, done, and the connection."""
    deadline.begin(5)
    handshake = ConnectionFactory(client.connection_pool).make()
    return handshake, handshake.connection()


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
        handshake, connection = handshake_of(client)
        assert isinstance(handshake._sock, _DeadlinedSocket)
        assert handshake._sock.connected is connection._socket
        connection.send(pack("PING") + pack("NONSENSE"))
        assert connection.receive() == b"PONG"
        assert isinstance(connection.receive(), ResponseError)
        connection.send(pack("BLPOP", "nothing", 0))
        with deadline.limit(0.1), pytest.raises(redis.TimeoutError):
            connection.receive()
        connection.disconnect()


def test_a_handshake_without_any_reply_will_do(redis_server, redis_url):
    host, port = HOST, redis_server.port
    works(RedisStore(redis.Redis(host, port, redis_connect_func=lambda connection: None)))


def test_a_handshake_has_the_deadline_too():
    with SilentServer() as server:
        store = open_store(f"{server.url}?protocol=3", {"deadline": 0.3})
        started = time.monotonic()
        with pytest.raises(StoreError):
            store.ping()
        assert time.monotonic() - started < 0.6


@pytest.mark.parametrize(
    ("library", "kind"),
    [
        (SimpleNamespace(PushNotification=list), wire.HiredisConnection),
        (SimpleNamespace(), wire.Connection),  # an old one, which returns pushes as replies
        (None, wire.Connection),
    ],
    ids=["hiredis", "an old hiredis", "no hiredis"],
)
def test_replies_are_parsed_by_hiredis_where_it_will_do(monkeypatch, library, kind):
    monkeypatch.setattr(wire, "hiredis", library)
    assert wire.connection_class() is kind


@RESPS
def test_a_pool_leaves_nothing_behind_in_our_connections(redis_server, redis_url, resp):
    client = redis_server.client(protocol=resp, decode_responses=True)
    client.ping()
    handshake, connection = handshake_of(client)
    notifications = getattr(handshake, "maint_notifications_config", None)
    assert not notifications or not notifications.enabled  # they would relax the time-outs
    assert handshake.retry._retries == 0
    connection.disconnect()
    works(RedisStore(client))


def test_a_context_of_tls_is_made_without_a_handshake(tls_server):
    uri = f"rediss://{HOST}:{tls_server.port}/0?ssl_ca_certs={tls_server.ca}"
    store = open_store(uri, {"deadline": 5})
    store.ping()
    [connection] = store._deployment._node._idle
    tls = store._deployment._node._connect.__self__._class.tls
    assert tls._made[1] is connection._socket.context


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
    assert manager._force_master_ip == "192.0.2.1"
    store = RedisStore(manager.master_for("shop"))
    assert store._deployment._remap(("10.0.0.1", 6379)) == ("192.0.2.1", 6379)
    [sentinel] = store._deployment._sentinels
    assert sentinel._connect.__self__.make().port == 1
