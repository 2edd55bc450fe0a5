"""Simultaneous duplicates over HTTP: the time of the last answer, and the runs of the view."""

import http.client
import json
import statistics
import sys
import threading
import time
import uuid
from collections import Counter
from contextlib import closing
from pathlib import Path

from helpers.servers.processes import HOST, Gunicorn
from reporting.stores import Stores

DUPLICATES = (1, 2, 4, 8, 16, 32, 64)


def measure(stores: Stores, rounds: int) -> list[dict]:
    """Send bursts of duplicates over HTTP, to a view that takes 50 ms; return a row for each."""
    environment = {"IDEMPOTENCE_STORAGE_URI": stores.redis.url}
    here = Path(__file__).parent
    with Gunicorn(
        "guarded_service:app", workers=2, threads=32, env=environment, cwd=here
    ) as gunicorn:
        return [
            _burst(gunicorn.port, path, count, rounds)
            for path in ("/key/slow", "/key/slow/waiting")
            for count in DUPLICATES
        ]


def _burst(port: int, path: str, count: int, rounds: int) -> dict:
    print(f"... {count} at once to {path}", file=sys.stderr, flush=True)
    last, runs, statuses = [], [], Counter()
    for _ in range(rounds + 1):
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
        threading.Thread(target=_send, args=(port, path, key, barrier, answers))
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    if len(answers) != count:
        raise RuntimeError(f"{count - len(answers)} of {count} requests were not answered")
    return answers, time.perf_counter() - start


def _send(port: int, path: str, key: str, barrier: threading.Barrier, answers: list) -> None:
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
