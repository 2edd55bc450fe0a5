"""How a URI, or the application's client, becomes a deployment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from redis import ConnectionPool, Redis, RedisCluster
from redis.connection import SSLConnection
from redis.sentinel import Sentinel, SentinelConnectionPool

from ...errors import ConfigurationError
from .cluster import Cluster
from .deployment import Deployment, SentinelService
from .link import ConnectionFactory
from .node import Address

_PORTS = {"sentinel": 26379, "cluster": 6379}

# Options of the store, which a URI may have in its query, and how they are read there.
_STORE_OPTIONS: dict[str, Callable[[str], float]] = {"deadline": float, "wait_replicas": int}


def deployment_at(uri: str, options: Mapping[str, Any]) -> tuple[Deployment, dict[str, Any]]:
    """Return the deployment that a URI names, without connecting to it, and the store's options.

    `options`, which the URI's query overrides, are those of the store and of connections of
    redis-py; `sentinel_kwargs` among them are for connections to the sentinels themselves.
    """
    scheme, _, rest = uri.partition("://")
    rest, _, query = rest.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    own = {name: value for name, value in options.items() if name in _STORE_OPTIONS}
    own |= {name: _STORE_OPTIONS[name](value) for name, value in pairs if name in _STORE_OPTIONS}
    query = urlencode([(name, value) for name, value in pairs if name not in _STORE_OPTIONS])
    options = {name: value for name, value in options.items() if name not in _STORE_OPTIONS}
    return _deployment(scheme.lower(), rest, query, options), own


def _deployment(scheme: str, rest: str, query: str, options: dict[str, Any]) -> Deployment:
    transport, _, kind = scheme.partition("+")
    transport = transport.replace("valkey", "redis")
    if not kind:
        return deployment_of(Redis.from_url(f"{transport}://{rest}?{query}", **options))
    authority, _, path = rest.partition("/")
    user, at, hosts = authority.rpartition("@")
    addresses = []
    for host in hosts.split(","):
        parts = urlsplit(f"//{host}")
        if not parts.hostname or parts.path:
            raise ValueError("no host")
        addresses.append((parts.hostname, parts.port or _PORTS[kind]))
    url = f"{transport}://{user}{at}localhost"
    if kind == "cluster":
        return _cluster(ConnectionPool.from_url(f"{url}/{path}?{query}", **options), addresses)
    service, _, database = path.partition("/")
    if not service:
        raise ValueError("no service")
    sentinel_kwargs = options.pop("sentinel_kwargs", {})
    pool = ConnectionPool.from_url(f"{url}/{database}?{query}", **options)
    settings = {n: v for n, v in pool.connection_kwargs.items() if n not in {"host", "port"}}
    settings["ssl"] = issubclass(pool.connection_class, SSLConnection)
    # The user and password of the URI are the servers'; TLS is for the sentinels as well.
    shared = {n: v for n, v in settings.items() if n.startswith(("ssl", "socket_"))}
    untyped: Any = Sentinel
    manager = untyped(addresses, sentinel_kwargs={**shared, **sentinel_kwargs}, **settings)
    return deployment_of(manager.master_for(unquote(service)))


def deployment_of(client: Redis | RedisCluster) -> Deployment:
    """Return the deployment of the application's client, which is not altered."""
    if isinstance(client, RedisCluster):
        cluster: Any = client
        nodes = cluster.get_nodes()
        pool = cluster.get_redis_connection(nodes[0]).connection_pool
        addresses = [(str(node.host), int(node.port)) for node in nodes]
        remap = cluster.nodes_manager.address_remap
        return _cluster(pool, addresses, cluster.user_on_connect_func, remap)
    pool = getattr(client, "connection_pool", None)
    if not isinstance(client, Redis) or not isinstance(pool, ConnectionPool):
        raise ConfigurationError(
            f"RedisStore takes a redis.Redis client, or a redis.RedisCluster, not "
            f"{type(client).__module__}.{type(client).__qualname__}."
        )
    connect = ConnectionFactory(pool).connect
    if not isinstance(pool, SentinelConnectionPool):
        return Deployment(connect)
    if not pool.is_master:
        raise ConfigurationError(
            "This client of Redis Sentinel reads from replicas. Pass the one that "
            "sentinel.master_for(...) returns."
        )
    return SentinelService(pool.sentinel_manager, pool.service_name, connect)


def _cluster(
    pool: ConnectionPool,
    addresses: list[Address],
    on_connect: object = None,
    remap: Callable[[Address], Address] | None = None,
) -> Deployment:
    if pool.connection_kwargs.get("db"):
        raise ConfigurationError("A Redis Cluster has only database 0: leave db out.")
    # The cluster client connects with a function of its own, for its parser and its replicas.
    factory = ConnectionFactory(pool, redis_connect_func=on_connect)
    return Cluster(addresses, factory.connect, remap)
