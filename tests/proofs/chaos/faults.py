"""What is done to the servers: a schedule by a seed, and the hands that carry it out."""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from helpers.servers.faults import CLAIM, Proxy
from helpers.servers.processes import Assembled, Gunicorn, RedisServer, until
from helpers.servers.topologies import SentinelGroup

from .history import KILLED, STOPPED, Fault, history_in


@dataclass(frozen=True)
class Plan:
    """A fault to come: after a pause, of a kind, for so many seconds, to one of the workers."""

    pause: float
    kind: str
    seconds: float
    victim: int


LENGTHS = {  # in leases
    KILLED: (0, 0),
    STOPPED: (1.3, 1.7),
    "worker stopped briefly": (0.1, 0.25),
    "redis killed": (0.05, 0.25),
    "redis away for longer than a lease": (1.2, 1.5),
    "bytes delayed": (0.2, 0.6),
    "bytes dropped": (0.1, 0.3),
    "replies dropped": (0.1, 0.3),
    "connections cut": (0.05, 0.2),
    "primary killed": (0, 0),
}


def plans(seed: int, kinds: list[str], lease: float) -> Iterator[Plan]:
    rng = random.Random(f"{seed} faults")
    while True:
        for kind in rng.sample(kinds, len(kinds)):
            pause, length = rng.uniform(0.25, 0.8), rng.uniform(*LENGTHS[kind])
            yield Plan(pause * lease, kind, length * lease, rng.randrange(1000))


class Workers:
    """Gunicorn's processes, to be killed and stopped in the middle of a view, if possible."""

    kinds = (KILLED, KILLED, STOPPED, "worker stopped briefly")

    def __init__(self, server: Gunicorn, directory: Path):
        self._server = server
        self._directory = directory
        self._stopped: dict[int, threading.Timer] = {}
        self.faults: list[Fault] = []

    def do(self, plan: Plan) -> None:
        """Carry a plan out; one that lasts goes on beside what comes next."""
        # Gunicorn takes seconds to notice a death; somebody has to be left to serve.
        if not until(lambda: len(self._running()) > 1, 90):
            raise RuntimeError(f"No workers come after those that died:\n{self._server.log}")
        until(self._busy, 2)
        candidates = self._busy() or self._running()
        if not candidates:  # the last one has just ended by itself
            self.do(plan)
            return
        victim = candidates[plan.victim % len(candidates)]
        begun = time.monotonic()
        if plan.kind == KILLED:
            os.kill(victim, signal.SIGKILL)
            self.faults.append(Fault(KILLED, begun, time.monotonic(), victim))
            return
        os.kill(victim, signal.SIGSTOP)
        timer = threading.Timer(plan.seconds, self._continue, [plan.kind, victim, begun])
        self._stopped[victim] = timer
        timer.start()

    def _continue(self, kind, pid, begun) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        self.faults.append(Fault(kind, begun, time.monotonic(), pid))
        del self._stopped[pid]

    def end(self) -> None:
        for timer in [*self._stopped.values()]:
            timer.join()

    def _running(self) -> list[int]:
        return [pid for pid in self._server.workers() if pid not in self._stopped]

    def _busy(self) -> list[int]:
        runs = history_in(self._directory).runs
        in_view = {run.pid for run in runs if not run.end}
        return [pid for pid in self._running() if pid in in_view]


class OneServer(Assembled):
    """A server that writes everything down at once, behind a proxy that does harm."""

    kinds = (
        *("redis killed", "redis away for longer than a lease", "connections cut"),
        *("bytes delayed", "bytes dropped", "replies dropped"),
    )

    def _assemble(self, start) -> None:
        self._redis = start(RedisServer("--appendonly", "yes", "--appendfsync", "always"))
        self._proxy = start(Proxy(self._redis))
        self.url = self._proxy.url
        self.faults: list[Fault] = []

    def do(self, plan: Plan) -> None:
        begun = time.monotonic()
        self._switch(plan, on=True)
        time.sleep(plan.seconds)
        self._switch(plan, on=False)
        self.faults.append(Fault(plan.kind, begun, time.monotonic()))

    def _switch(self, plan: Plan, *, on: bool) -> None:
        redis, proxy = self._redis, self._proxy
        if plan.kind.startswith("redis"):
            change = redis.kill if on else redis.start
            change()
        elif plan.kind == "connections cut":
            change = proxy.refuse if on else proxy.accept
            change()
        elif plan.kind == "bytes delayed":
            proxy.delay = 0.02 + plan.victim % 300 / 1000 if on else 0.0
        elif plan.kind == "bytes dropped":
            proxy.black_hole = on
        else:
            proxy.drop_next_replies(8 if on else 0, after=(b"EVALSHA", *CLAIM))


DOWN_AFTER = 2.0
"""Seconds after which a silent primary counts as dead."""


class Sentinels:
    """A primary, two replicas and three sentinels; what counts is what all replicas have.

    On a busy machine the sentinels may take a slow primary for a dead one. What follows is a fault
    as good as any, and is noted as one.
    """

    kinds = ("primary killed",)

    def __enter__(self):
        self._group = SentinelGroup(down_after=DOWN_AFTER).__enter__()
        self.url = f"{self._group.url}?wait_replicas={SentinelGroup.REPLICAS}"
        self.faults: list[Fault] = []
        self._primary = self._group.primary
        self._asked = threading.Lock()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._watcher.join()
        self._group.__exit__()

    def _watch(self) -> None:
        while not self._over.wait(1):
            with self._asked, contextlib.suppress(RuntimeError):  # too busy to tell
                begun = time.monotonic() - 2 * DOWN_AFTER
                if self._group.primary is not self._primary:
                    until(self._group.is_whole, 40)
                    kind = "primary replaced though it was alive"
                    self.faults.append(Fault(kind, begun, time.monotonic()))
                    self._primary = self._group.primary

    def do(self, plan: Plan) -> None:
        with self._asked:
            begun = time.monotonic()
            old = self._group.primary
            old.kill()
            new = self._group.wait_for_failover(old, 40)
            old.start()  # empty
            old.client().replicaof("127.0.0.1", new.port)
            if not until(self._group.is_whole, 40):
                raise RuntimeError("The group did not become whole again.")
            self._primary = self._group.primary
            self.faults.append(Fault(plan.kind, begun, time.monotonic()))
