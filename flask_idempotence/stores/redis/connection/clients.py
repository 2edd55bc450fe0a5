"""How a URI, or the application's client, becomes a deployment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from redis import ConnectionPool, Redis, RedisCluster
from redis.connection import SSLConnection
from redis.sentinel import Sentinel, SentinelConnectionPool

from ....errors import ConfigurationError
from .cluster import Cluster
from .deployment import Deployment
from .factory import ConnectionFactory
from .node import Address, Node
from .sentinel import SentinelService

_MAX_CONNECTIONS = 10_000
"""A request needs a connection at once; the number of threads is the limit."""

_PORTS = {"sentinel": 26379, "cluster": 6379}

_STORE_OPTIONS: dict[str, Callable[[str], float]] = {"deadline": float, "wait_replicas": int}
"""Options of the store, which a URI may have in its query, and how they are read there."""


def deployment_at(uri: str, options: Mapping[str, Any]) -> tuple[Deployment, dict[str, Any]]:
    """Return the deployment that a URI names, without connecting to it, and the store's options.

    Args:
        uri: with one of the schemes in `stores.uris`. Options in its query win.
        options: arguments of the store and of redis-py's connections; for sentinels also
            `sentinel_kwargs`, those of the connections to the sentinels themselves.

    Raises:
        ValueError: the URI cannot be read.
        ConfigurationError: the connections cannot be set up like that.
    """
    scheme, _, rest = uri.partition("://")
    rest, _, query = rest.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    own = {name: value for name, value in options.items() if name in _STORE_OPTIONS}
    own |= {name: _STORE_OPTIONS[name](value) for name, value in pairs if name in _STORE_OPTIONS}
    query = urlencode([(name, value) for name, value in pairs if name not in _STORE_OPTIONS])
    options = {name: value for name, value in options.items() if name not in _STORE_OPTIONS}
    options.setdefault("max_connections", _MAX_CONNECTIONS)
    return _deployment(scheme.lower(), rest, query, options), own


def _deployment(scheme: str, rest: str, query: str, options: dict[str, Any]) -> Deployment:
    transport, _, kind = scheme.partition("+")
    transport = transport.replace("valkey", "redis")
    if not kind:
        return deployment_of(Redis.from_url(f"{transport}://{rest}?{query}", **options))
    authority, _, path = rest.partition("/")
    user, at, hosts = authority.rpartition("@")
    addresses = [_address(host, _PORTS[kind]) for host in hosts.split(",")]
    url = f"{transport}://{user}{at}localhost"
    if kind == "cluster":
        return _cluster(ConnectionPool.from_url(f"{url}/{path}?{query}", **options), addresses)
    service, _, database = path.partition("/")
    if not service:
        raise ValueError("no service")
    sentinel_kwargs = options.pop("sentinel_kwargs", {})
    pool = ConnectionPool.from_url(f"{url}/{database}?{query}", **options)
    return deployment_of(_sentinel_client(pool, addresses, unquote(service), sentinel_kwargs))


def _address(host: str, port: int) -> Address:
    parts = urlsplit(f"//{host}")
    if not parts.hostname or parts.path:
        raise ValueError("no host")
    return parts.hostname, parts.port or port


def _sentinel_client(
    pool: ConnectionPool,
    addresses: list[Address],
    service: str,
    sentinel_kwargs: Mapping[str, object],
) -> Redis:
    settings = {n: v for n, v in pool.connection_kwargs.items() if n not in {"host", "port"}}
    settings["ssl"] = issubclass(pool.connection_class, SSLConnection)
    # The user and password of the URI are the servers'; TLS is for the sentinels as well.
    shared = {n: v for n, v in settings.items() if n.startswith(("ssl", "socket_"))}
    untyped: Any = Sentinel
    manager = untyped(addresses, sentinel_kwargs={**shared, **sentinel_kwargs}, **settings)
    client: Redis = manager.master_for(service)
    return client


def deployment_of(client: Redis | RedisCluster) -> Deployment:
    """Return the deployment of the application's client. The client is not altered.

    Raises:
        ConfigurationError: the client is of a kind that is not supported, or its connections
            cannot be set up.
    """
    if isinstance(client, RedisCluster):
        return _of_cluster(client)
    pool = getattr(client, "connection_pool", None)
    if not isinstance(client, Redis) or not isinstance(pool, ConnectionPool):
        raise ConfigurationError(
            f"RedisStore takes a redis.Redis client, or a redis.RedisCluster, not "
            f"{type(client).__module__}.{type(client).__qualname__}."
        )
    if isinstance(pool, SentinelConnectionPool):
        return _service(pool)
    return Deployment(ConnectionFactory(pool).connect)


def _of_cluster(client: Any) -> Deployment:
    nodes = client.get_nodes()
    pool = client.get_redis_connection(nodes[0]).connection_pool
    addresses = [(str(node.host), int(node.port)) for node in nodes]
    remap = client.nodes_manager.address_remap
    return _cluster(pool, addresses, client.user_on_connect_func, remap)


def _cluster(
    pool: ConnectionPool,
    addresses: list[Address],
    on_connect: object = None,
    remap: Callable[[Address], Address] | None = None,
) -> Deployment:
    if pool.connection_kwargs.get("db"):
        raise ConfigurationError("A Redis Cluster has only database 0: leave db out.")
    # The cluster client's own function upon connecting is about its parser and its replicas.
    factory = ConnectionFactory(pool, redis_connect_func=on_connect)
    return Cluster(addresses, factory.connect, remap)


def _service(pool: SentinelConnectionPool) -> Deployment:
    if not pool.is_master:
        raise ConfigurationError(
            "This client of Redis Sentinel reads from replicas. Pass the one that "
            "sentinel.master_for(...) returns."
        )
    manager = pool.sentinel_manager
    sentinels = [
        Node(ConnectionFactory(each.connection_pool).connect) for each in manager.sentinels
    ]
    forced = getattr(manager, "_force_master_ip", None)

    def remap(address: Address) -> Address:
        return (forced or address[0], address[1])

    connect = ConnectionFactory(pool).connect
    return SentinelService(pool.service_name, sentinels, connect, remap)
