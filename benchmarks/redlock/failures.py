"""Servers that fail after they granted claims: how many of these a second caller is granted."""

import os
import sys
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .algorithm import RedLock

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from helpers.servers.faults import Proxy
from helpers.servers.processes import HOST, RedisServer, all_at_once, until

from flask_idempotence import StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed

TTL = 30.0
"""Seconds: nothing that is counted here takes so long."""

LAG = 0.3
"""Seconds by which a replica is behind, for each packet."""

DEADLINE = 3.0
"""Seconds; a replica that is behind answers in less."""

AT_ONCE = ("--repl-diskless-sync-delay", "0")
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@dataclass
class Counts:
    """Claims of a first caller, and what became of them.

    Attributes:
        granted: claims that the first caller was granted.
        refused: those that it was not.
        again: those granted that a second caller was granted as well, while they were valid.
    """

    granted: int = 0
    refused: int = 0
    again: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in vars(self)})


def count(first: list[bool], second: list[bool]) -> Counts:
    """Return the counts of claims on the same keys by two callers."""
    both = sum(a and b for a, b in zip(first, second, strict=True))
    return Counts(sum(first), len(first) - sum(first), both)


def new_keys(claims: int) -> list[str]:
    return [uuid.uuid4().hex for _ in range(claims)]


def fail_over(claims: int, *, replicas: int, wait_replicas: int, cut_off: bool = False) -> Counts:
    """Claim on a primary, and kill it; the last replica, which is behind, is promoted.

    Args:
        claims: the number of claims.
        replicas: the number of replicas; the others die with the primary.
        wait_replicas: as the store's option.
        cut_off: whether the last replica gets nothing at all any more.
    """
    keys = new_keys(claims)
    with ExitStack() as stack:
        primary = stack.enter_context(RedisServer(*AT_ONCE))
        proxy = stack.enter_context(Proxy(primary))
        others = [stack.enter_context(RedisServer(*AT_ONCE)) for _ in range(replicas)]
        follow(primary, {**dict.fromkeys(others, primary.port), others[-1]: proxy.port})
        proxy.delay, proxy.black_hole = LAG, cut_off
        first = _grants(primary.url, keys, wait_replicas=wait_replicas)
        for server in (primary, *others[:-1]):
            server.kill()
        others[-1].client().replicaof("NO", "ONE")
        return count(first, _grants(others[-1].url, keys))


def follow(primary: RedisServer, ports: dict[RedisServer, int]) -> None:
    """Make servers replicas of a primary, and wait until each is up to date.

    Args:
        primary: the primary.
        ports: the replicas, with the port by which each reaches the primary.
    """
    for replica, port in ports.items():
        replica.client().replicaof(HOST, port)
    client = primary.client()

    def have_confirmed() -> bool:
        client.set("written", "to all")
        return client.wait(len(ports), 1000) == len(ports)

    # The first write may reach a replica with its snapshot; the second one is streamed.
    if not (until(have_confirmed, 20) and until(have_confirmed, 20)):
        raise RuntimeError("The replicas did not connect.")


def _grants(url: str, keys: list[str], **options) -> list[bool]:
    """Claim each key, all at once, and return which of them were granted."""
    store = open_store(url, {"deadline": DEADLINE, **options})

    def is_granted(key: str) -> bool:
        try:
            return store.claim(key, os.urandom(16), NO_FINGERPRINT, TTL, 0) == Claimed()
        except StoreError:
            return False

    return all_at_once([lambda key=key: is_granted(key) for key in keys])


def restart(
    claims: int, *, servers: int, away: int, restarted: int, fsync: bool = False
) -> Counts:
    """Claim by RedLock while some servers are away; they return, and others restart at once.

    Args:
        claims: the number of claims.
        servers: the number of servers.
        away: how many of them are being restarted while the first caller claims.
        restarted: how many of the others are killed and started afterwards.
        fsync: whether servers write each claim to the disk before they acknowledge it.
    """
    keys = new_keys(claims)
    with ExitStack() as stack:
        options = DURABLE if fsync else ()
        of_all = [stack.enter_context(RedisServer(*options)) for _ in range(servers)]
        absent, present = of_all[:away], of_all[away:]
        for server in absent:
            server.kill()
        first = _majority_grants(of_all, keys)
        for server in present[:restarted]:
            server.kill()
        for server in (*absent, *present[:restarted]):
            server.start()
        return count(first, _majority_grants(of_all, keys))


def _majority_grants(servers: list[RedisServer], keys: list[str]) -> list[bool]:
    lock = RedLock([(HOST, server.port) for server in servers])
    try:
        return [lock.claim(key, TTL) is not None for key in keys]
    finally:
        lock.close()
