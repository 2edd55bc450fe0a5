"""What is done to each service over HTTP; each scenario returns what was seen."""

import contextlib
import http.client
import json
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import redis

from .catalogue import Peer
from .serving import Reply, Service, Stage

DUPLICATES = 8
ROUNDS = 5
LEASE = 2.0
"""Seconds of a lease, for those who have one to set; the others keep their defaults."""
PATIENCE = 6.0
"""Seconds after a kill at which the last retry is made: three leases."""
ANNA, BEN = "anna", "ben"


class Bench:
    """A service and its twin, their ledger, and the store to look into."""

    def __init__(
        self, peer: Peer, services: tuple[Service, Service], ledger: Path, store: redis.Redis
    ):
        self._peer = peer
        self._service, self._twin = services
        self._ledger = ledger
        self._store = store

    def prepare(self, *plan: tuple[str | int, float]) -> None:
        """Begin with an empty ledger and an empty Redis, and say what each run is to do."""
        self._store.flushdb()
        (self._ledger / "plan.json").write_text(json.dumps(plan))
        for book in ("runs", "effects"):
            (self._ledger / book).unlink(missing_ok=True)

    def pay(self, key: str, *, user: str = ANNA, amount: int = 12) -> Reply:
        headers = {
            "Authorization": f"Bearer {user}",
            "Content-Type": "application/json",
            self._peer.header: key,
        }
        body = json.dumps({"amount": amount}).encode()
        return self._service.send("POST", "/payments", headers, body)

    def kill(self) -> None:
        """Kill the service that answers, without warning; from now on its twin answers."""
        self._service.kill()
        self._service, self._twin = self._twin, self._service

    def count(self, book: str) -> int:
        """Return how many runs began, or how many effects there were."""
        file = self._ledger / book
        return len(file.read_text().splitlines()) if file.exists() else 0

    def seen(self, *replies: Reply) -> dict:
        return {
            "answers": [vars(reply) for reply in replies],
            "runs": self.count("runs"),
            "effects": self.count("effects"),
            "longest_ttl": self._longest_ttl(),
        }

    def _longest_ttl(self) -> int | None:
        """Return the seconds that something will stay in Redis: -1 for ever, None for nothing."""
        left = [self._store.ttl(key) for key in self._store.keys()]  # noqa: SIM118
        return min(left) if -1 in left else max(left, default=None)


def repeat(bench: Bench) -> dict:
    bench.prepare(("pay", 0))
    return _twice(bench)


def duplicates(bench: Bench) -> dict:
    """Send the same so many times at once; do it again."""
    rounds = []
    for _ in range(ROUNDS):
        bench.prepare(("pay", 0.4))
        key = str(uuid.uuid4())
        replies = _at_once(lambda key=key: bench.pay(key))
        statuses = Counter(str(reply.status) for reply in replies)
        runs = {reply.run for reply in replies if reply.run}
        rounds.append(
            {
                "effects": bench.count("effects"),
                "statuses": dict(sorted(statuses.items())),
                "different_answers": len(runs),
            }
        )
    return {"rounds": rounds}


def _at_once(call: Callable[[], Reply]) -> list[Reply]:
    barrier = threading.Barrier(DUPLICATES)

    def run() -> Reply:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(DUPLICATES) as pool:
        futures = [pool.submit(run) for _ in range(DUPLICATES)]
    return [future.result() for future in futures]


def another_user(bench: Bench) -> dict:
    bench.prepare(("pay", 0))
    key = str(uuid.uuid4())
    return bench.seen(bench.pay(key), bench.pay(key, user=BEN))


def another_body(bench: Bench) -> dict:
    bench.prepare(("pay", 0))
    key = str(uuid.uuid4())
    return bench.seen(bench.pay(key), bench.pay(key, amount=99))


def _after(act: str | int, wanted: int, bench: Bench) -> dict:
    """The first run fails; the same is sent again."""
    bench.prepare((act, 0), ("pay", 0))
    return {**_twice(bench), "wanted": wanted}


def _twice(bench: Bench) -> dict:
    key = str(uuid.uuid4())
    return bench.seen(bench.pay(key), bench.pay(key))


def killed(bench: Bench) -> dict:
    """Kill -9 a service in mid-view, before the effect; send the same to its twin."""
    bench.prepare(("pay", 3600), ("pay", 0))
    key = str(uuid.uuid4())

    def lose() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            bench.pay(key)

    lost = threading.Thread(target=lose)
    lost.start()
    _wait_for(lambda: bench.count("runs") == 1)
    bench.kill()
    killed_at = time.monotonic()
    lost.join()
    at_once = bench.pay(key)
    told_at_once = time.monotonic() - killed_at
    time.sleep(max(0.0, killed_at + PATIENCE - time.monotonic()))
    asked_later = time.monotonic() - killed_at
    later = bench.pay(key)
    seconds = {"first_told": round(told_at_once, 1), "second_asked": round(asked_later, 1)}
    return {**bench.seen(at_once, later), "seconds": seconds}


def slow(bench: Bench) -> dict:
    """The view runs for two leases; the same is sent after one and a half."""
    bench.prepare(("pay", 2 * LEASE), ("pay", 0))
    key = str(uuid.uuid4())
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(bench.pay, key)
        _wait_for(lambda: bench.count("runs") == 1)
        time.sleep(1.5 * LEASE)
        second = bench.pay(key)
    return bench.seen(first.result(), second)


def cookie(bench: Bench) -> dict:
    bench.prepare(("cookie", 0))
    return _twice(bench)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("the view was not reached")
        time.sleep(0.02)


SCENARIOS: dict[str, Callable[[Bench], dict]] = {
    "repeat": repeat,
    "duplicates": duplicates,
    "another_user": another_user,
    "another_body": another_body,
    "aborted": partial(_after, 404, 404),  # for good
    "busy": partial(_after, 429, 429),  # for now
    "failed": partial(_after, "raise", 500),  # by an exception that nobody handles
    "killed": killed,
    "slow": slow,
    "cookie": cookie,
}


def observe(stage: Stage, peer: Peer) -> dict[str, dict]:
    seen = {}
    with tempfile.TemporaryDirectory() as ledger, stage.redis.client() as store:
        environ = stage.environ(peer, PEERS_LEDGER=ledger, PEERS_LEASE=str(LEASE))
        (Path(ledger) / "plan.json").write_text('[["pay", 0]]')
        python = stage.environments.of(peer)
        with Service(peer, python, environ) as one, Service(peer, python, environ) as twin:
            bench = Bench(peer, (one, twin), Path(ledger), store)
            for name, scenario in SCENARIOS.items():
                if name == "cookie" and not peer.cookies:
                    continue
                print(f"... {peer.title}: {name}", file=sys.stderr, flush=True)
                seen[name] = scenario(bench)
    return seen
