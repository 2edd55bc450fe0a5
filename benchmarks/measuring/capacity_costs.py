"""What a key and an operation cost a Redis server."""

import os
import socket
import sys
from pathlib import Path

import redis
from measuring.redis_costs import Shop, json_of, maker, used

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from helpers.servers.processes import HOST, RedisServer

from flask_idempotence.stores.redis.store import CLAIM, COMPLETE, RENEW, TAKE_TOKEN

SIZES = (0, 100, 1_000, 10_000, 100_000)
OPERATIONS = 20_000
CONNECTIONS = 32
ROUNDS = 5  # of which the quickest counts
ASKS = bytes(16)
_PACK = redis.Connection().pack_command


def measure() -> dict:
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
            body = json_of(size) if size >= 100 else b""
            told[str(size)] = used(client, maker(shop, body))["bytes"]
        told["lock"] = used(client, lambda: shop.order(b'{"order": 1}'))["bytes"]
        told["token"] = used(client, shop.token)["bytes"]
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
            "claim": [_by_hash(CLAIM, key, owner, ASKS, 30_000, 0) for key, owner in both],
            "renew": [_by_hash(RENEW, key, owner, 30_000) for key, owner in both],
            "refusal": [_by_hash(CLAIM, key, b"x" * 16, ASKS, 30_000, 0) for key in keys],
            "complete": [_by_hash(COMPLETE, key, owner, ASKS, record, ms) for key, owner in both],
            "replay": [_by_hash(CLAIM, key, b"x" * 16, ASKS, 30_000, 0) for key in keys],
            "put": [("SET", f"{key}t", b"T", "PX", 300_000) for key in keys],
            "take": [_by_hash(TAKE_TOKEN, f"{key}t", b"") for key in keys],
        }
        told = {name: _cost(server, client, commands) for name, commands in steps.items()}
        client.flushall()
    return {
        "microseconds": {name: round(time, 1) for name, (time, _) in told.items()},
        "wire": {name: round(size) for name, (_, size) in told.items()},
    }


def _by_hash(script, key, *arguments):
    return ("EVALSHA", script.digest, 1, key, *arguments)


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
