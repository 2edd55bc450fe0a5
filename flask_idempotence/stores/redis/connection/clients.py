"""How a URI, or a client of the application's, becomes a topology."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from redis import ConnectionPool, Redis, RedisCluster
from redis.connection import Connection, SSLConnection
from redis.exceptions import RedisError
from redis.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from ....errors import ConfigurationError
from .cluster import Cluster
from .connections import connections_like
from .node import Address, Node
from .topology import SentinelService, SingleServer, Topology

_DEFAULT_MAX_CONNECTIONS = 10_000
"""A request needs a connection at once; what bounds them is the number of threads."""

_PORTS = {"sentinel": 26379, "cluster": 6379}

_TRANSPORTS = {
    "redis": "redis",
    "rediss": "rediss",
    "valkey": "redis",
    "valkeys": "rediss",
}

SCHEMES = (
    *_TRANSPORTS,
    "unix",
    *(f"{transport}+{kind}" for kind in _PORTS for transport in _TRANSPORTS),
)
"""The schemes that a Redis URI may have."""

OWN_OPTIONS: dict[str, Callable[[str], float]] = {"deadline": float, "wait_replicas": int}
"""What a query may say to the store itself, and how it is read."""


def split_options(
    uri: str, options: Mapping[str, Any]
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Separate what is meant for the store from what is meant for its connections.

    Returns:
        The URI without the store's options; the store's; the connections'. Those in the URI win.

    Raises:
        ValueError: an option in the URI cannot be read.
    """
    given = dict(options)
    own = {name: given.pop(name) for name in OWN_OPTIONS if name in given}
    bare, _, query = uri.partition("?")
    told = parse_qsl(query, keep_blank_values=True)
    if in_query := {name: value for name, value in told if name in OWN_OPTIONS}:
        own |= {name: OWN_OPTIONS[name](value) for name, value in in_query.items()}
        rest = urlencode([(name, value) for name, value in told if name not in OWN_OPTIONS])
        uri = f"{bare}?{rest}"
    return uri, own, given


def topology_at(uri: str, options: Mapping[str, Any]) -> Topology:
    """Return the topology that a URI names, without connecting to it.

    Args:
        uri: with one of `SCHEMES`.
        options: arguments of redis-py's connections; for sentinels also `sentinel_kwargs`, those
            of the connections to the sentinels themselves.

    Raises:
        ValueError: it cannot be read.
        ConfigurationError: the connections cannot be set up so.
    """
    scheme, _, rest = uri.partition("://")
    transport, _, kind = scheme.lower().partition("+")
    options = {"max_connections": _DEFAULT_MAX_CONNECTIONS, **options}
    url = f"{_TRANSPORTS.get(transport, transport)}://"
    if not kind:
        return topology_of(Redis.from_url(url + rest, **options))
    user, hosts, path, query = _split(rest)
    addresses = [_address(host, _PORTS[kind]) for host in hosts.split(",")]
    if kind == "cluster":
        pool = ConnectionPool.from_url(f"{url}{user}localhost{path}{query}", **options)
        return _cluster(pool, addresses)
    service, _, database = path.removeprefix("/").partition("/")
    if not service:
        raise ValueError("no service")
    sentinel_kwargs = options.pop("sentinel_kwargs", {})
    pool = ConnectionPool.from_url(f"{url}{user}localhost/{database}{query}", **options)
    client = _sentinel_client(pool, addresses, unquote(service), sentinel_kwargs)
    return topology_of(client)


def _split(rest: str) -> tuple[str, str, str, str]:
    """Split what follows the scheme into user, hosts, path and query, each with its separator."""
    rest, mark, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    user, at, hosts = authority.rpartition("@")
    return user + at, hosts, slash + path, mark + query


def _address(host: str, port: int) -> Address:
    parts = urlsplit(f"//{host}")
    if not parts.hostname or parts.path:
        raise ValueError("no host")
    return parts.hostname, parts.port or port


def _sentinel_client(
    pool: ConnectionPool,
    addresses: list[Address],
    service: str,
    sentinel_kwargs: Mapping[str, Any],
) -> Redis:
    given = {n: v for n, v in pool.connection_kwargs.items() if n not in {"host", "port"}}
    tls = issubclass(pool.connection_class, SSLConnection)
    # The user and password of the URI are the servers'; TLS is for the sentinels as well.
    alike = {n: v for n, v in given.items() if n.startswith(("ssl_", "socket_"))}
    sentinel_kwargs = {"ssl": tls, **alike, **sentinel_kwargs}
    manager: Any = Sentinel  # has no types
    client: Redis = manager(
        addresses, sentinel_kwargs=sentinel_kwargs, ssl=tls, **given
    ).master_for(service)
    return client


def topology_of(client: Redis | RedisCluster) -> Topology:
    """Return the topology that a ready client stands for. The client is not altered.

    Raises:
        ConfigurationError: the client is of a kind that is not supported, or its connections
            cannot be set up.
    """
    if isinstance(client, RedisCluster):
        return _of_cluster(client)
    pool = getattr(client, "connection_pool", None)
    if not isinstance(client, Redis) or not isinstance(pool, ConnectionPool):
        raise ConfigurationError(
            f"A redis.Redis client is needed, or a redis.RedisCluster, not "
            f"{type(client).__module__}.{type(client).__qualname__}."
        )
    if isinstance(pool, SentinelConnectionPool):
        return _service(pool)
    return SingleServer(functools.partial(_connected, _maker(pool)))


def _of_cluster(client: Any) -> Topology:
    nodes = client.get_nodes()
    pool = client.get_redis_connection(nodes[0]).connection_pool
    addresses = [(str(node.host), int(node.port)) for node in nodes]
    remap = client.nodes_manager.address_remap
    return _cluster(pool, addresses, client.user_on_connect_func, remap)


def _service(pool: SentinelConnectionPool) -> Topology:
    if not pool.is_master:
        raise ConfigurationError(
            "This client of Redis Sentinel reads from replicas. Give the one that "
            "sentinel.master_for(...) returns."
        )
    manager = pool.sentinel_manager
    sentinels = [
        Node(functools.partial(_connected, _maker(sentinel.connection_pool)))
        for sentinel in manager.sentinels
    ]
    forced = getattr(manager, "_force_master_ip", None)

    def remap(address: Address) -> Address:
        return (forced or address[0], address[1])

    connect_to = _connect_to(_maker(pool, connection_pool=None))
    return SentinelService(pool.service_name, sentinels, connect_to, remap)


def _cluster(
    pool: ConnectionPool,
    addresses: list[Address],
    on_connect: Any = None,
    remap: Callable[[Address], Address] | None = None,
) -> Topology:
    if pool.connection_kwargs.get("db"):
        raise ConfigurationError("A Redis Cluster has only the database 0.")
    # The cluster client's own function upon connecting is about its parser and its replicas.
    connect_to = _connect_to(_maker(pool, redis_connect_func=on_connect))
    return Cluster(addresses, connect_to, remap or (lambda address: address))


def _maker(pool: ConnectionPool, **changes: Any) -> Callable[..., Any]:
    """Return what makes connections like a pool's, having tried it."""
    kinds: dict[Any, Any] = {
        SentinelManagedConnection: Connection,
        SentinelManagedSSLConnection: SSLConnection,
    }
    make = connections_like(pool, kinds.get(pool.connection_class), changes)
    try:
        make()
    except TypeError as error:
        raise ConfigurationError(f"An option of the connection to Redis: {error}") from None
    except (ValueError, RedisError) as error:
        raise ConfigurationError(
            f"The connection to Redis cannot be set up ({type(error).__name__})."
        ) from None
    return make


def _connect_to(make: Callable[..., Any]) -> Callable[[str, int], Any]:
    return lambda host, port: _connected(lambda: make(host=host, port=port))


def _connected(make: Callable[[], Any]) -> Any:
    connection = make()
    connection.connect()
    return connection
