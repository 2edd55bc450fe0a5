"""The time that each peer adds to its own unguarded view, and the bytes it stores."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis
from measuring.timing import BLOCK
from redis.client import Monitor

from .catalogue import Peer
from .environments import SERVICES
from .serving import Stage

KINDS = ("first", "replay")
STEPS = {"first": "fill", "replay": "again"}
"""The worker's command that sends guarded requests of one kind, and no other."""
FILL = 1000
CONNECTING = ("HELLO", "CLIENT")
TABLE = "fastapi_idempotency_requests"


class Worker:
    """A process in a peer's environment that times its applications."""

    def __init__(self, peer: Peer, python: Path, environ: dict[str, str]):
        self.peer = peer
        command = [str(python), "-W", "ignore", "worker.py", peer.service]
        command += ["asgi" if peer.asgi else "wsgi", peer.header]
        self._process = subprocess.Popen(
            command,
            cwd=SERVICES,
            env=environ,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(30)

    def do(self, what: str, count: int) -> dict:
        self._process.stdin.write(f"{what} {count}\n")
        self._process.stdin.flush()
        if line := self._process.stdout.readline():
            return json.loads(line)
        raise RuntimeError(f"{self.peer.title}: the process has ended")


def measure(stage: Stage, peers: list[Peer], requests: int) -> dict[str, dict]:
    """Return the measurements by peer: blocks of times, commands, and bytes a key."""
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(peer, stage.environments.of(peer), stage.environ(peer)))
            for peer in peers
        ]
        measured = {worker.peer.name: _count(stage, worker) for worker in workers}
        for kind in KINDS:
            for worker in workers:
                told = worker.do(kind, BLOCK)  # warms everything up, and is not counted
                measured[worker.peer.name][kind] = {"error": told.get("error"), "blocks": []}
            _interleave(kind, workers, measured, requests // BLOCK)
    return measured


def _interleave(kind: str, workers: list[Worker], measured: dict, blocks: int) -> None:
    able = [w for w in workers if not measured[w.peer.name][kind]["error"]]
    for block in range(blocks):
        print(f"... {kind}: block {block + 1} of {blocks}", file=sys.stderr, flush=True)
        for worker in able:
            told = worker.do(kind, BLOCK)
            if "error" in told:
                raise RuntimeError(f"{worker.peer.title}: {told['error']}")
            medians = [statistics.median(told[which]) / 1000 for which in ("bare", "guarded")]
            measured[worker.peer.name][kind]["blocks"].append(medians)
        able.append(able.pop(0))  # nobody always follows the same one


def _count(stage: Stage, worker: Worker) -> dict:
    """Count commands and bytes, one peer at a time."""
    print(f"... {worker.peer.title}: commands and bytes", file=sys.stderr, flush=True)
    for kind in KINDS:
        worker.do(kind, 10)  # connects, and loads what there is to load
    counted = {}
    with stage.redis.client() as store:
        if worker.peer.postgres:
            steps = {kind: worker.do(step, 1)["statements"] for kind, step in STEPS.items()}
            counted["commands"] = steps
            before = _table_size(stage)
            worker.do("fill", FILL)
            counted["bytes"] = round((_table_size(stage) - before) / FILL)
        else:
            counted["commands"] = {
                kind: _commands(store, worker, step) for kind, step in STEPS.items()
            }
            store.flushdb()
            worker.do("fill", FILL)
            keys = store.keys()
            total = sum(store.memory_usage(key, samples=0) for key in keys)
            counted["bytes"] = round(total / FILL)
            counted["expires"] = all(store.ttl(key) > 0 for key in keys)
        store.flushdb()
    return counted


def _table_size(stage: Stage) -> int:
    [(size,)] = stage.postgres.execute(f"SELECT pg_total_relation_size('{TABLE}')")
    return size


def _commands(store: redis.Redis, worker: Worker, step: str) -> list[str] | None:
    """Return the commands of one request, without those that a script calls in the server."""
    with _watched(store) as seen:
        failed = "error" in worker.do(step, 1)
    return None if failed else seen


@contextmanager
def _watched(store: redis.Redis) -> Iterator[list[str]]:
    seen: list[str] = []
    with store.monitor() as monitor:
        _until(monitor, store, "watched from here")  # the mark's own connection is made, too
        yield seen
        time.sleep(0.05)  # what is sent without waiting for an answer
        seen += _until(monitor, store, "watched to here")


def _until(monitor: Monitor, store: redis.Redis, mark: str) -> list[str]:
    """Send a mark; return what was sent before it."""
    store.echo(mark)
    seen = []
    while (told := monitor.next_command())["command"] != f"ECHO {mark}":
        command = told["command"].split(" ", 1)[0]
        if told["client_type"] != "lua" and command not in CONNECTING:
            seen.append(command)
    return seen
