"""A failover under load: what of all that was acknowledged the new primary still knows."""

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor

from flask_idempotence import StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Done, Outcome
from helpers.servers.processes import HOST, until
from helpers.servers.topologies import SentinelGroup

LEASE = 300
CUT_FOR = 0.3
"""Seconds for which replicas are cut off before the primary dies."""

CALM = 1.0
"""Seconds of load before anything happens, and after all is well again."""

THREADS = 8


class FailoverLoad:
    """Threads that claim, and complete every other claim; what they were told; what is lost."""

    def __init__(self, url, wait_replicas):
        options = {"deadline": 1.0, "wait_replicas": wait_replicas}
        # A store each, as so many processes would have: they share neither connections nor
        # what they know of the topology.
        self._stores = [open_store(url, options) for _ in range(THREADS)]
        self.claims, self.completions, self.slowest = [], [], 0.0
        self.lost_claims = self.lost_completions = None
        self._last_claim, self._ends = 0.0, False

    def __enter__(self):
        self._threads = ThreadPoolExecutor(THREADS)
        works = enumerate(self._stores)
        self._works = [self._threads.submit(self._work, *each) for each in works]
        time.sleep(CALM)
        return self

    def __exit__(self, *_):
        self._ends = True
        for work in self._works:
            work.result()
        self._threads.shutdown()

    def wait_for_a_claim(self, after):
        assert until(lambda: self._last_claim > after, 15), "nothing granted after the failover"
        time.sleep(CALM)

    def _work(self, place, store):
        for number in itertools.count():
            if self._ends:
                return
            key, owner = f"{place} {number}", os.urandom(16)
            if self._timed(store.claim, key, owner, NO_FINGERPRINT, LEASE, 0) != Claimed():
                continue
            if number % 2:
                # What is completed is no longer a claim: it is counted as a completion.
                done = self._timed(store.complete, key, owner, NO_FINGERPRINT, b"r", LEASE)
                if done is Outcome.OK:
                    self.completions.append(key)
            else:
                self._last_claim = time.monotonic()
                self.claims.append(key)

    def _timed(self, call, *arguments):
        started = time.monotonic()
        try:
            return call(*arguments)
        except StoreError:
            time.sleep(0.005)
            return None
        finally:
            self.slowest = max(self.slowest, time.monotonic() - started)

    def count_what_is_lost(self):
        # Asking must not depend on replicas: what is granted now was lost before.
        store = self._stores[0]
        store._deployment.replicas = 0
        claims, completions = (
            [store.claim(key, b"r" * 16, NO_FINGERPRINT, 1, 0) for key in keys]
            for keys in (self.claims, self.completions)
        )
        self.lost_claims = claims.count(Claimed())
        self.lost_completions = sum(not isinstance(each, Done) for each in completions)


def fail_over(*, wait_replicas, cut_off=0):
    """Kill the primary under load, and count what of the acknowledged is lost.

    Some replicas are cut off from the primary shortly before it dies. Where it is one, the other
    one dies with the primary.
    """
    with SentinelGroup() as group:
        with FailoverLoad(group.url, wait_replicas) as load:
            load.wait_for_a_claim(after=_fail(group, cut_off))
        load.count_what_is_lost()
    return load


def _fail(group, cut_off):
    """Kill the primary, wait for its successor, and return when it died; the dead follow it."""
    old = group.primary
    replicas = [server for server in group.servers if server is not old]
    away, attached = replicas[:cut_off], replicas[cut_off:]
    if away:
        _cut(old, away, attached)
        time.sleep(CUT_FOR)
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


def _cut(primary, away, attached):
    for replica in away:
        replica.pause()  # so that it does not connect again
    behind = primary.client()
    behind.client_kill_filter(_type="replica")
    ports = {server.port for server in attached}

    def is_cut():
        told = behind.info("replication")
        links = [told[f"slave{number}"] for number in range(told["connected_slaves"])]
        return {link["port"] for link in links if link["state"] == "online"} == ports

    assert until(is_cut, 5), "the replicas could not be cut off"
