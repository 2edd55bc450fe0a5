"""How the URIs of Redis are read, into all their parts, without connecting."""

import threading

import pytest
import redis
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection

from flask_idempotence import ConfigurationError, RedisStore
from flask_idempotence.stores import open_store


class TestUris:
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
        with pytest.raises(ConfigurationError, match=r"cannot be read|percent-encode") as caught:
            open_store(uri, {})
        assert "hunter2" not in str(caught.value)

    def test_a_cluster_has_one_database(self):
        with pytest.raises(ConfigurationError, match="only database 0"):
            open_store("redis+cluster://a/1", {})

    @pytest.mark.parametrize("uri", ["redis+sentinel://a/shop", "redis+cluster://a"])
    def test_an_unknown_option_is_refused(self, uri):
        with pytest.raises(ConfigurationError, match="unheard_of"):
            open_store(uri, {"unheard_of": 1})

    def test_what_the_uri_says_wins(self):
        store = open_store("redis://a?deadline=0.5", {"deadline": 2, "wait_replicas": 1})
        assert (store._deadline, store._deployment.replicas) == (0.5, 1)

    def test_every_setting_of_the_uri_reaches_the_connections(self):
        uri = "rediss+sentinel://u:p%40ss@a/shop/3?ssl_cert_reqs=none"
        sentinel_kwargs = {"username": "watch", "password": "dog"}
        service = open_store(uri, {"sentinel_kwargs": sentinel_kwargs})._deployment
        connection = service._connect_to.__self__.make(host="h", port=1)
        assert isinstance(connection, redis.SSLConnection)
        assert (connection.username, connection.password, connection.db) == ("u", "p@ss", 3)
        sentinel = service._manager.sentinels[0]._connect.__self__.make()
        assert isinstance(sentinel, redis.SSLConnection)
        assert (sentinel.username, sentinel.password, sentinel.db) == ("watch", "dog", 0)
        assert (sentinel.host, sentinel.port) == ("a", 26379)


def settings_of(store):
    """Return the class and the settings of the connections to the servers of a store."""
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
        (
            "redis://u%3A%2F:p%40ss@a:7/3",
            Connection,
            {"host": "a", "port": 7, "db": 3} | USER,
        ),
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
    store = open_store(uri, {"socket_keepalive": True})
    made, found = settings_of(store)
    assert isinstance(made, SSLConnection) is (transport in OF_TLS)
    assert found == {"host": "h", "port": 1} | USER
    assert made.socket_keepalive is True
    assert list(store._deployment._seeds) == [("a", 6379), ("b", 7001), ("::1", 7002)]
    for (host, port), node in store._deployment._seeds.items():
        seed = node.connect.func.__self__.make(**node.connect.keywords)
        assert (node.host, seed.host, seed.port) == (host, host, port)
    assert (store._deadline, store._deployment.replicas) == (2, 1)


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


@pytest.mark.parametrize(
    ("uri", "options", "refusal"),
    [
        (
            "redis://a",
            {"protocol": 5},
            "IDEMPOTENCE_STORAGE_URI or IDEMPOTENCE_STORAGE_OPTIONS: "
            "The connection to Redis cannot be set up (ConnectionError).",
        ),
        (
            "redis+cluster://a",
            {"db": 2},
            "IDEMPOTENCE_STORAGE_URI or IDEMPOTENCE_STORAGE_OPTIONS: "
            "A Redis Cluster has only database 0: leave db out.",
        ),
        (
            "redis://a",
            {"deadline": True},
            "IDEMPOTENCE_STORAGE_URI or IDEMPOTENCE_STORAGE_OPTIONS: "
            "deadline must be a number of seconds greater than 0.",
        ),
        (
            "redis://a?wait_replicas=1001",
            {},
            "IDEMPOTENCE_STORAGE_URI or IDEMPOTENCE_STORAGE_OPTIONS: "
            "wait_replicas must be a number of replicas, 0 for none.",
        ),
    ],
)
def test_a_refusal_in_full(uri, options, refusal):
    with pytest.raises(ConfigurationError) as caught:
        open_store(uri, options)
    assert str(caught.value) == refusal


class OtherClient:
    """A client of another library."""


def test_clients_that_will_not_do_are_refused_with_the_remedy():
    manager = redis.Sentinel([("a", 1)])
    for client, refusal in (
        (
            OtherClient(),
            "RedisStore takes a redis.Redis client, or a redis.RedisCluster, not "
            f"{__name__}.OtherClient.",
        ),
        (
            manager.slave_for("shop"),
            "This client of Redis Sentinel reads from replicas. Pass the one that "
            "sentinel.master_for(...) returns.",
        ),
    ):
        with pytest.raises(ConfigurationError) as caught:
            RedisStore(client)
        assert str(caught.value) == refusal


@pytest.mark.parametrize(
    "settings",
    [
        *({"deadline": wrong} for wrong in (0, -1, True, "1", None, float("nan"), float("inf"))),
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
