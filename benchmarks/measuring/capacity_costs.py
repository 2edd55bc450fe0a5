"""What a key and an operation cost a server, and a cluster that is filled with keys."""

import os
import random
import socket
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import redis
from measuring.redis_costs import Shop, _maker, _order, _used, by_hash
from redis.crc import key_slot

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from helpers.servers.processes import HOST, RedisServer
from helpers.servers.topologies import Cluster

from flask_idempotence.stores.redis.lua import CLAIM, COMPLETE, RENEW, TAKE_TOKEN

SIZES = (0, 100, 1_000, 10_000, 100_000)
OPERATIONS = 20_000
CONNECTIONS = 32
ROUNDS = 5  # of which the quickest counts
KEYS = 300_000
ASKS = bytes(16)
_PACK = redis.Connection().pack_command


def measure() -> dict:
    """Return the constants."""
    with RedisServer() as server:
        return {
            "redis": server.version,
            "usage": usage(server),
            **costs(server),
        }


def usage(server: RedisServer) -> dict:
    """Return the MEMORY USAGE of a key of each kind, for records by the size of the response."""
    shop = Shop(server.url)
    told = {}
    with server.client() as client:
        for size in SIZES:
            body = _order(size) if size >= 100 else b""
            told[str(size)] = _used(client, _maker(shop, body))["bytes"]
        told["lock"] = _used(client, lambda: shop.order(b'{"order": 1}'))["bytes"]
        told["token"] = _used(client, shop.token)["bytes"]
        client.flushall()
    return told


def costs(server: RedisServer) -> dict:
    """Return the server's own time and the bytes on the wire for one operation of each kind.

    The time is the process's, so what else runs on the machine hardly matters. A few connections
    send at once, as those of a busy service do.
    """
    with server.client() as client:
        for script in (CLAIM, COMPLETE, RENEW, TAKE_TOKEN):
            client.script_load(script.source)
        client.flushall()
        record, ms = os.urandom(50), 3_600_000
        owners = [os.urandom(16) for _ in range(OPERATIONS)]
        keys = [f"idempotence:2:key:create_document:{os.urandom(16).hex()}" for _ in owners]
        both = list(zip(keys, owners, strict=True))
        steps = {
            "claim": [by_hash(CLAIM, key, owner, ASKS, 30_000, 0) for key, owner in both],
            "renew": [by_hash(RENEW, key, owner, 30_000) for key, owner in both],
            "refusal": [by_hash(CLAIM, key, b"x" * 16, ASKS, 30_000, 0) for key in keys],
            "complete": [by_hash(COMPLETE, key, owner, ASKS, record, ms) for key, owner in both],
            "replay": [by_hash(CLAIM, key, b"x" * 16, ASKS, 30_000, 0) for key in keys],
            "put": [("SET", f"{key}t", b"T", "PX", 300_000) for key in keys],
            "take": [by_hash(TAKE_TOKEN, f"{key}t", b"") for key in keys],
        }
        told = {name: _cost(server, client, commands) for name, commands in steps.items()}
        client.flushall()
    return {
        "microseconds": {name: round(time, 1) for name, (time, _) in told.items()},
        "wire": {name: round(size) for name, (_, size) in told.items()},
    }


def _cost(server: RedisServer, client: redis.Redis, commands: list) -> tuple[float, float]:
    packed = [b"".join(_PACK(*command)) for command in commands]
    links = [socket.create_connection((HOST, server.port)) for _ in range(CONNECTIONS)]
    rounds = [_one_round(client, links, some) for some in _batches(packed, len(packed) // ROUNDS)]
    for link in links:
        link.close()
    return min(time for time, _ in rounds), rounds[-1][1]


def _one_round(client: redis.Redis, links: list, packed: list) -> tuple[float, float]:
    before = client.info("all")
    for some in _batches(packed, CONNECTIONS):
        for link, command in zip(links, some, strict=False):
            link.sendall(command)
        for link, _ in zip(links, some, strict=False):
            if link.recv(65536).startswith(b"-"):
                raise RuntimeError("The server refuses.")
    after = client.info("all")
    names = ("used_cpu_user", "used_cpu_sys")
    seconds = sum(after[name] - before[name] for name in names)
    names = ("total_net_input_bytes", "total_net_output_bytes")
    size = sum(after[name] - before[name] for name in names)
    return seconds * 1e6 / len(packed), size / len(packed)


def _batches(items: list, size: int):
    return (items[first : first + size] for first in range(0, len(items), size))


@dataclass(frozen=True)
class Node:
    """A node of a filled cluster: its keys by their kind, and the bytes by which it grew."""

    keys: Counter
    used: int


def filled_nodes() -> list[Node]:
    """Fill a cluster with locks and with records of two sizes; return its nodes."""
    values = _samples(("lock", "100", "1000"))
    with Cluster(timeout=15) as cluster:
        clients = {node.port: node.client() for node in cluster.primaries}
        empty = {port: _used_memory(client) for port, client in clients.items()}
        counts = _fill(cluster, clients, values)
        if sum(client.dbsize() for client in clients.values()) != KEYS:
            raise RuntimeError("Some keys are missing.")
        return [
            Node(counts[port], _used_memory(client) - empty[port])
            for port, client in clients.items()
        ]


def _used_memory(client: redis.Redis) -> int:
    told = client.info("memory")
    return told["used_memory"] - told["mem_clients_normal"]  # buffers of the filling


def _samples(kinds: tuple) -> dict:
    """Return for each kind the name of the endpoint and the value that the library stores."""
    with RedisServer() as server, server.client() as client:
        shop, told = Shop(server.url), {}
        for kind in kinds:
            make = (
                (lambda: shop.order(b'{"order": 1}'))
                if kind == "lock"
                else _maker(shop, _order(int(kind)))
            )
            key = _used(client, make)["key"]
            told[kind] = key.rpartition(":")[0], client.get(key)
        return told


def _fill(cluster: Cluster, clients: dict, values: dict) -> dict:
    some = random.Random(1)
    slots = {}
    for first, last, (_, port, *_), *_ in cluster.nodes[0].call("CLUSTER", "SLOTS"):
        slots |= dict.fromkeys(range(first, last + 1), port)
    counts = {port: Counter() for port in clients}
    for kind, (name, value) in values.items():
        for chunk in _batches([value] * (KEYS // len(values)), 1000):
            pipes = {port: client.pipeline(transaction=False) for port, client in clients.items()}
            for one in chunk:
                key = f"{name}:{some.getrandbits(128):032x}"
                port = slots[key_slot(key.encode())]
                pipes[port].set(key, one, px=3_600_000)
                counts[port][kind] += 1
            for pipe in pipes.values():
                pipe.execute()
    return counts
