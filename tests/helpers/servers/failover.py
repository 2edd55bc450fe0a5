"""A failover under load: what of all that was acknowledged the new primary still knows."""

import itertools
import os
import threading
import time
from dataclasses import dataclass, field

from flask_idempotence import StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Done, Outcome
from helpers.servers.processes import HOST, until
from helpers.servers.topologies import SentinelGroup

LEASE = 300
CUT_FOR = 0.3
"""Seconds for which replicas are cut off before the primary dies."""

DEADLINE = 1.0


@dataclass
class Counts:
    """What came of one failover; the new primary does not know what is lost."""

    claims: int = 0
    lost_claims: int = 0
    completions: int = 0
    lost_completions: int = 0
    slowest: float = 0.0


@dataclass
class _Load:
    """Threads that claim, and complete every other claim, until they are told to end."""

    url: str
    wait_replicas: int
    claimed: list = field(default_factory=list)  # (when, key)
    completed: list = field(default_factory=list)
    slowest: float = 0.0
    ends: bool = False

    def run(self, threads: int) -> list[threading.Thread]:
        # A store each, as so many processes would have: they share neither connections nor
        # what they know of the topology.
        stores = [self.store() for _ in range(threads)]
        workers = [
            threading.Thread(target=self._work, args=[store, str(number)])
            for number, store in enumerate(stores)
        ]
        for worker in workers:
            worker.start()
        return workers

    def store(self):
        options = {"deadline": DEADLINE, "wait_replicas": self.wait_replicas}
        return open_store(self.url, options)

    def has_claimed_after(self, moment: float) -> bool:
        return bool(self.claimed) and self.claimed[-1][0] > moment

    def _work(self, store, name) -> None:
        for number in itertools.count():
            if self.ends:
                return
            key, owner = f"{name} {number}", os.urandom(16)
            claim = self._timed(store.claim, key, owner, NO_FINGERPRINT, LEASE, 0)
            if claim != Claimed():
                continue
            if number % 2:
                # What is completed is no longer a claim: it is counted as a completion.
                done = self._timed(store.complete, key, owner, NO_FINGERPRINT, b"r", LEASE)
                if done is Outcome.OK:
                    self.completed.append(key)
            else:
                self.claimed.append((time.monotonic(), key))

    def _timed(self, call, *arguments):
        started = time.monotonic()
        try:
            return call(*arguments)
        except StoreError:
            time.sleep(0.005)
            return None
        finally:
            self.slowest = max(self.slowest, time.monotonic() - started)


def fail_over(
    *, wait_replicas: int, cut_off: int = 0, threads: int = 8, seconds: float = 1.0
) -> Counts:
    """Kill the primary under load, and count what of the acknowledged is lost.

    Some replicas are cut off from the primary shortly before it dies. Where it is one, the other
    one dies with the primary.
    """
    with SentinelGroup() as group:
        load = _Load(group.url, wait_replicas)
        workers = load.run(threads)
        try:
            time.sleep(seconds)
            died = fail(group, cut_off)
            if not until(lambda: load.has_claimed_after(died), 15):
                raise RuntimeError("Nothing was granted after the failover.")
            time.sleep(seconds)
        finally:
            load.ends = True
            for worker in workers:
                worker.join()
        return _count(load, load.store())


def fail(group: SentinelGroup, cut_off: int, *, while_cut=lambda: time.sleep(CUT_FOR)) -> float:
    """Kill the primary, wait for its successor, and return when it died; the dead follow it."""
    old = group.primary
    replicas = [server for server in group.servers if server is not old]
    away, attached = replicas[:cut_off], replicas[cut_off:]
    if away:
        _cut(old, away, attached)
        while_cut()
    dying = [old, *attached] if away else [old]
    for server in dying:
        server.kill()
    died = time.monotonic()
    for replica in away:
        replica.resume()
    new = group.wait_for_failover(old, 40)
    for server in dying:  # empty; where all replicas are waited for, nothing goes on without it
        server.start()
        server.client().replicaof(HOST, new.port)
    return died


def _cut(primary, away, attached) -> None:
    for replica in away:
        replica.pause()  # so that it does not connect again
    behind = primary.client()
    behind.client_kill_filter(_type="replica")
    ports = {server.port for server in attached}

    def is_cut() -> bool:
        told = behind.info("replication")
        links = [told[f"slave{number}"] for number in range(told["connected_slaves"])]
        return {link["port"] for link in links if link["state"] == "online"} == ports

    if not until(is_cut, 5):
        raise RuntimeError("The replicas could not be cut off.")


def _count(load: _Load, store) -> Counts:
    counts = Counts(
        claims=len(load.claimed),
        completions=len(load.completed),
        slowest=round(load.slowest, 2),
    )
    # Asking must not depend on replicas: what is granted now was lost before.
    store._deployment.replicas = 0
    for _, key in load.claimed:
        counts.lost_claims += store.claim(key, b"r" * 16, NO_FINGERPRINT, 1, 0) == Claimed()
    for key in load.completed:
        kept = isinstance(store.claim(key, b"r" * 16, NO_FINGERPRINT, 1, 0), Done)
        counts.lost_completions += not kept
    return counts
