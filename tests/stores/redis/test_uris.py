"""How the URIs of Redis are read, into all their parts, without connecting."""

import threading

import pytest
import redis
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection

from flask_idempotence import ConfigurationError, RedisStore
from flask_idempotence.stores import open_store


def settings_of(store):
    deployment = store._deployment
    connect = getattr(deployment, "_connect_to", None) or deployment._node.connect
    # Another address stands for that of a primary, which a sentinel or a node would name.
    address = {"host": "h", "port": 1} if hasattr(deployment, "_connect_to") else {}
    made = connect.__self__.make(**address)
    names = ("host", "port", "path", "db", "username", "password", "client_name")
    return made, {name: getattr(made, name) for name in names if getattr(made, name, None)}


OF_TLS = {"rediss", "valkeys"}
USER = {"username": "u:/", "password": "p@ss"}


@pytest.mark.parametrize(
    ("uri", "kind", "settings"),
    [
        ("redis://", Connection, {"host": "localhost", "port": 6379}),
        ("redis://a", Connection, {"host": "a", "port": 6379}),
        ("redis://u%3A%2F:p%40ss@a:7/3", Connection, {"host": "a", "port": 7, "db": 3} | USER),
        ("redis://:p%40ss@[::1]:7/", Connection, {"host": "::1", "port": 7, "password": "p@ss"}),
        ("REDIS://a/3?db=4", Connection, {"host": "a", "port": 6379, "db": 4}),
        (
            "redis://a?client_name=app://x?y=z&db=4",
            Connection,
            {"host": "a", "port": 6379, "db": 4, "client_name": "app://x?y=z"},
        ),
        ("rediss://a/3", SSLConnection, {"host": "a", "port": 6379, "db": 3}),
        ("valkey://a:7/3", Connection, {"host": "a", "port": 7, "db": 3}),
        ("valkeys://a:7/3", SSLConnection, {"host": "a", "port": 7, "db": 3}),
        (
            "unix://u%3A%2F:p%40ss@/run/redis.sock?db=3",
            UnixDomainSocketConnection,
            {"path": "/run/redis.sock", "db": 3} | USER,
        ),
    ],
)
def test_every_part_of_the_uri_of_one_server_is_read(uri, kind, settings):
    made, found = settings_of(open_store(uri, {}))
    assert isinstance(made, kind)
    assert isinstance(made, SSLConnection) is (kind is SSLConnection)
    assert found == settings


@pytest.mark.parametrize("transport", ["redis", "rediss", "valkey", "valkeys"])
def test_every_part_of_the_uri_of_a_cluster_is_read(transport):
    uri = f"{transport}+cluster://u%3A%2F:p%40ss@a,b:7001,[::1]:7002/0?deadline=2&wait_replicas=1"
    store = open_store(uri, {"socket_keepalive": True, "deadline": 3, "wait_replicas": 2})
    made, found = settings_of(store)
    assert isinstance(made, SSLConnection) is (transport in OF_TLS)
    assert found == {"host": "h", "port": 1} | USER
    assert made.socket_keepalive is True
    assert list(store._deployment._seeds) == [("a", 6379), ("b", 7001), ("::1", 7002)]
    for (host, port), node in store._deployment._seeds.items():
        seed = node.connect.func.__self__.make(**node.connect.keywords)
        assert (node.host, seed.host, seed.port) == (host, host, port)
    assert (store._deadline, store._deployment.replicas) == (2, 1)  # the URI wins


@pytest.mark.parametrize("transport", ["redis", "rediss", "valkey", "valkeys"])
def test_every_part_of_the_uri_of_sentinels_is_read(transport):
    uri = f"{transport}+sentinel://u%3A%2F:p%40ss@a,b:7001,[::1]:7002/the%20shop/3?deadline=2"
    store = open_store(uri, {"socket_keepalive": True})
    made, found = settings_of(store)
    assert isinstance(made, SSLConnection) is (transport in OF_TLS)
    assert found == {"host": "h", "port": 1, "db": 3} | USER
    service = store._deployment
    assert service._service == "the shop"
    assert store._deadline == 2
    sentinels = [each._connect.__self__.make() for each in service._manager.sentinels]
    assert [(each.host, each.port) for each in sentinels] == [
        ("a", 26379),
        ("b", 7001),
        ("::1", 7002),
    ]
    for each in sentinels:  # TLS and the socket's settings are theirs too, the user is not
        assert isinstance(each, SSLConnection) is (transport in OF_TLS)
        assert each.socket_keepalive is True
        assert (each.username, each.password, each.db) == (None, None, 0)


def test_sentinels_have_settings_of_their_own():
    watch = {"username": "watch", "password": "dog"}
    uri = "rediss+sentinel://u:p%40ss@a/shop/3?ssl_cert_reqs=none"
    manager = open_store(uri, {"sentinel_kwargs": watch})._deployment._manager
    sentinel = manager.sentinels[0]._connect.__self__.make()
    assert (sentinel.username, sentinel.password, sentinel.db) == ("watch", "dog", 0)


@pytest.mark.parametrize(
    ("client", "remedy"),
    [
        (redis.asyncio.Redis(), "takes a redis.Redis client, or a redis.RedisCluster, not redis"),
        ("redis://localhost", "takes a redis.Redis client, or a redis.RedisCluster, not builtins"),
        (redis.Sentinel([("a", 1)]).slave_for("shop"), "sentinel.master_for(...)"),
    ],
)
def test_clients_that_will_not_do_are_refused_with_the_remedy(client, remedy):
    with pytest.raises(ConfigurationError) as caught:
        RedisStore(client)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"deadline": None},
        {"deadline": threading.TIMEOUT_MAX * 1.01},
        *({"wait_replicas": wrong} for wrong in (-1, 1001, 1.0, "1", None)),
    ],
    ids=str,
)
def test_numbers_out_of_range_are_refused(settings):
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        RedisStore(redis.Redis(), **settings)


@pytest.mark.parametrize(
    ("deadline", "wait_replicas"), [(0.001, 0), (1, 1), (threading.TIMEOUT_MAX, 1000)]
)
def test_numbers_at_the_ends_of_their_range_are_taken(deadline, wait_replicas):
    store = RedisStore(redis.Redis(), deadline=deadline, wait_replicas=wait_replicas)
    assert (store._deadline, store._deployment.replicas) == (deadline, wait_replicas)
