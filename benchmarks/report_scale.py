"""How it grows: with live keys, with simultaneous duplicates, and with the size of bodies."""

import http.client
import json
import os
import statistics
import threading
import time
import uuid
from collections import Counter
from contextlib import closing
from pathlib import Path

import redis
from flask import Flask, request
from key_mode import TTL, keyed, replays
from measuring import DONE, Prepare, Variant, interleave, ratio
from running import RedisServer, microseconds, row_of
from servers import HOST, Gunicorn
from shop import answer, application, order

from flask_idempotence import Idempotence, MemoryStore, idempotent

KEYS = (1_000, 10_000, 100_000, 1_000_000)
DUPLICATES = (1, 2, 4, 8, 16, 32, 64)
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
ROUNDS = 5
FIRST = "first request"
RECORD = bytes(100)
STORED = b"D" + bytes(32) + RECORD
"""A completed record as the scripts keep it: a letter, owner, fingerprint, record."""


# --- live keys -------------------------------------------------------------------------------


def growth(server: RedisServer, requests: int, most: int) -> list[dict]:
    """Measure first requests and replays beside more and more live keys."""
    rows = []
    memory = MemoryStore(max_entries=2 * KEYS[-1])
    counts = [count for count in KEYS if count <= most]
    with server.client() as client:
        client.flushall()
        for count in counts:
            _fill_redis(client, count)
            bytes_used = client.info("memory")["used_memory"]
            rows.append(_beside("Redis, TCP", count, _guarded(server.url), requests))
            rows[-1]["bytes a key"] = round(bytes_used / count)
            _fill_memory(memory, count)
            rows.append(_beside("memory", count, _guarded(memory), requests))
        client.flushall()
    return rows


def _fill_redis(client: redis.Redis, count: int) -> None:
    missing = count - client.dbsize()
    while missing > 0:
        batch = min(missing, 10_000)
        pipeline = client.pipeline(transaction=False)
        for _ in range(batch):
            pipeline.set(f"idempotence:1:key:orders:{os.urandom(16).hex()}", STORED, ex=TTL)
        pipeline.execute()
        missing -= batch


def _fill_memory(store: MemoryStore, count: int) -> None:
    for _ in range(count - len(store)):
        key = f"idempotence:1:key:orders:{os.urandom(16).hex()}"
        store.complete(key, bytes(16), bytes(16), RECORD, TTL)


def _beside(store: str, count: int, app: Flask, requests: int) -> dict:
    return {"store": store, "keys": count, **_compare(f"{count} keys, {store}", app, requests)}


def _guarded(store: str | MemoryStore, view=answer) -> Flask:
    @idempotent(required=True)
    def guarded() -> dict:
        return view()

    at = {"IDEMPOTENCE_STORAGE_URI": store} if isinstance(store, str) else {}
    app = application("ours: key", guarded, **at)
    Idempotence(app, store=None if at else store)
    return app


def _compare(title: str, app: Flask, requests: int, view=answer, body=order) -> dict:
    """Return times and ratios of first requests and replays to the view without a guard."""
    bare = Variant("unguarded", application("plain", view), _firsts(body))
    first = Variant(FIRST, app, _firsts(body))
    again = Variant("replay", app, replays(app, body), replays=True)
    interleave(title, [bare, first, again], requests)
    told = {"unguarded": row_of(microseconds(bare.nanoseconds), 1)}
    for variant in (first, again):
        times = row_of(microseconds(variant.nanoseconds), 1)
        told[variant.name] = {"times": times, "ratio": row_of(ratio(variant, bare), 3)}
    return told


def _firsts(body) -> Prepare:
    return lambda count: [keyed(body()) for _ in range(count)]


# --- bodies ----------------------------------------------------------------------------------


def bodies(server: RedisServer, requests: int) -> list[dict]:
    """Measure bodies and answers of more and more bytes."""

    def echo() -> dict:
        request.environ[DONE] = True
        return request.get_json()

    rows = []
    for size in SIZES:

        def body(size: int = size) -> bytes:
            return json.dumps({"order": str(uuid.uuid4()), "note": "x" * (size - 62)}).encode()

        app = _guarded(server.url, echo)
        count = min(requests, max(100, 20_000_000 // size))
        rows.append({"bytes": size, **_compare(f"{size} bytes", app, count, echo, body)})
    return rows


# --- duplicates ------------------------------------------------------------------------------


def duplicates(server: RedisServer) -> list[dict]:
    """Send so many duplicates at once over HTTP, to a view that takes 50 ms."""
    environment = {"IDEMPOTENCE_STORAGE_URI": server.url}
    here = Path(__file__).parent
    with Gunicorn("service:app", workers=2, threads=32, env=environment, cwd=here) as gunicorn:
        return [
            _burst(gunicorn.port, path, count)
            for path in ("/key/slow", "/key/slow/waiting")
            for count in DUPLICATES
        ]


def _burst(port: int, path: str, count: int) -> dict:
    last, runs, statuses = [], [], Counter()
    for _ in range(ROUNDS + 1):
        answers, seconds = _at_once(port, path, count)
        last.append(seconds)
        runs.append(len({run for _, run in answers if run}))
        statuses.update(str(status) for status, _ in answers)
    return {
        "path": path,
        "duplicates": count,
        "last answer, ms": round(1000 * statistics.median(last[1:]), 1),  # the first warms up
        "runs": max(runs),
        "statuses": dict(statuses),
    }


def _at_once(port: int, path: str, count: int) -> tuple[list, float]:
    barrier = threading.Barrier(count + 1)
    answers, key = [], str(uuid.uuid4())
    threads = [
        threading.Thread(target=_ask, args=(port, path, key, barrier, answers))
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    if len(answers) != count:
        raise RuntimeError(f"{count - len(answers)} of {count} requests had no answer")
    return answers, time.perf_counter() - start


def _ask(port: int, path: str, key: str, barrier: threading.Barrier, answers: list) -> None:
    with closing(http.client.HTTPConnection(HOST, port, timeout=30)) as connection:
        connection.connect()
        barrier.wait()
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        connection.request("POST", path, order_of(key), headers)
        response = connection.getresponse()
        answers.append((response.status, json.loads(response.read()).get("run")))


def order_of(key: str) -> bytes:
    """Return the same body for the same key."""
    return json.dumps({"order": key}).encode()
