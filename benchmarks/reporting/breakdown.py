"""Where the time goes: the cost of a round trip, and of the steps of a guarded request."""

import gc
import os
import socket
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import redis
from helpers.servers.processes import HOST
from measuring.command import microseconds, row_of
from measuring.redis_costs import by_hash
from measuring.stopwatch import Stopwatch, watch
from measuring.timing import BLOCK, Variant, interleave
from modes import key_mode, lock_mode
from modes.order_app import load, plain
from reporting.stores import REDIS, REDIS_UNIX, Stores

from flask_idempotence.stores.redis.connection.clients import deployment_at
from flask_idempotence.stores.redis.connection.link import deadline, pack
from flask_idempotence.stores.redis.lua import CLAIM

LEASE = 30_000
BARE, LINK, REDIS_PY = "bare socket", "our connection", "redis-py"
REST = "everything else"
CASES = {
    "lock, first request": (lock_mode.ours, plain),
    "key, first request": (key_mode.ours, lambda: plain(key_mode.first_requests)),
    "key, replay": (key_mode.our_replay, lambda: plain(key_mode.first_requests)),
}


def measure(stores: Stores, requests: int) -> list[dict]:
    """Measure round trips on both kinds of socket, and the steps of requests over TCP."""
    server = stores.redis
    with server.client() as client:
        load(client, "claim")
    rows = []
    for transport, uri in ((REDIS, server.url), (REDIS_UNIX, server.unix_url)):
        rows += _round_trips(transport, uri, requests)
    return rows + [_steps(name, server.url, requests) for name in CASES]


# --- round trips -----------------------------------------------------------------------------


def _round_trips(transport: str, uri: str, count: int) -> list[dict]:
    with closing(_connected(uri)) as bare, redis.Redis.from_url(uri) as client:
        deployment, _ = deployment_at(uri, {})
        deadline.begin(600)
        ways = {
            BARE: lambda command: _ask(bare, command),
            LINK: lambda command: deployment.send([pack(*command)], key="any"),
            REDIS_PY: lambda command: client.execute_command(*command),
        }
        rows = []
        for name, make in (("PING", lambda: ("PING",)), ("a claim", _claim)):
            times = _in_turn(ways, make, count)
            told = {way: row_of(microseconds(taken), 1) for way, taken in times.items()}
            rows.append({"transport": transport, "command": name, "times": told})
        return rows


def _connected(uri: str) -> socket.socket:
    where = redis.connection.parse_url(uri)
    if "path" in where:
        bare = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bare.connect(where["path"])
    else:
        bare = socket.create_connection((where.get("host", HOST), where["port"]))
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bare


def _ask(bare: socket.socket, command: tuple) -> bytes:
    """Send a command whose words are ready, and read an answer that comes in one piece."""
    bare.sendall(_packed(command))
    answer = bare.recv(4096)
    if not answer.endswith(b"\r\n") or answer.startswith(b"-"):
        raise RuntimeError(f"{command[0]}: {answer!r}")
    return answer


def _packed(command: tuple) -> bytes:
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    sized = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%b" % (len(words), b"".join(sized))


def _claim() -> tuple:
    return by_hash(CLAIM, os.urandom(16).hex(), os.urandom(16), bytes(16), LEASE, 0)


def _in_turn(
    ways: dict[str, Callable], make: Callable[[], tuple], count: int
) -> dict[str, list[int]]:
    """Return the nanoseconds of so many round trips each way, made in turn."""
    times, order = {way: [] for way in ways}, list(ways)
    gc.collect()
    gc.disable()
    try:
        for _ in range(count + BLOCK):
            for way in order:
                command = make()
                start = time.perf_counter_ns()
                ways[way](command)
                times[way].append(time.perf_counter_ns() - start)
            order.append(order.pop(0))
    finally:
        gc.enable()
    return {way: taken[BLOCK:] for way, taken in times.items()}  # the first warm up


# --- steps -----------------------------------------------------------------------------------


def _steps(name: str, uri: str, requests: int) -> dict:
    """Time a request as it is, and in turn with it one with a stopwatch on its steps."""
    build, build_bare = CASES[name]
    ours, bare, another = build(uri), build_bare(), build(uri)
    with watch(another.app) as stopwatch:
        watched = replace(another, app=stopwatch)
        interleave(f"steps of: {name}", [ours, bare, watched], requests)
    steps = _medians(stopwatch.requests[-requests:])
    mine, its, with_watch = (_median(variant) for variant in (ours, bare, watched))
    return {
        "request": name,
        "unguarded": its,
        "added": mine - its,
        "stopwatch": with_watch - mine,
        "steps": {**steps, REST: mine - its - sum(steps.values())},
    }


def _medians(requests: list[dict[str, int]]) -> dict[str, float]:
    """Return the median microseconds of each step; what the view does anyway is left out."""
    names = dict.fromkeys(step for steps in requests for step in steps)
    return {
        name: statistics.median(steps.get(name, 0) for steps in requests) / 1000
        for name in names
        if name != Stopwatch.VIEWS_OWN
    }


def _median(variant: Variant) -> float:
    return statistics.median(variant.nanoseconds) / 1000
