"""What a claim costs: its time, and the packets that servers read for it."""

import gc
import os
import random
import statistics
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed

from .algorithm import RedLock
from .failures import AT_ONCE, DURABLE, HOST, TTL, RedisServer, follow

WARM = 50
"""Claims that are not counted."""


@dataclass
class Variant:
    """A way to claim.

    Attributes:
        name: the way, for the table.
        base: the name of the variant that it is compared with: one server, and the same client.
        claim: claims a key, and returns whether it was granted.
        servers: those that take part.
        seconds: the times of its claims.
        packets: what its servers read for a claim, from clients and from one another.
    """

    name: str
    base: str
    claim: Callable[[str], bool]
    servers: list[RedisServer]
    seconds: list[float] = field(default_factory=list)
    packets: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.seconds, n=100, method="inclusive")[98]


def latencies(claims: int) -> list[Variant]:
    """Make so many claims in each way, one of each in turn, in random order."""
    with ExitStack() as stack:
        variants = [*_by_store(stack), *_by_redlock(stack)]
        _claim(variants, WARM)
        for variant in variants:
            variant.seconds.clear()
        _claim(variants, claims)
        for variant in variants:
            before = _reads(variant)
            for _ in range(WARM):
                variant.claim(uuid.uuid4().hex)
            looks = len(variant.servers)  # of INFO itself
            variant.packets = (_reads(variant) - before - looks) / WARM
        return variants


def _claim(variants: list[Variant], claims: int) -> None:
    order = list(variants)
    gc.collect()
    gc.disable()
    try:
        for _ in range(claims):
            random.shuffle(order)
            for variant in order:
                key = uuid.uuid4().hex
                began = time.perf_counter()
                granted = variant.claim(key)
                variant.seconds.append(time.perf_counter() - began)
                if not granted:
                    raise RuntimeError(f"{variant.name}: a new key was refused")
    finally:
        gc.enable()


def _reads(variant: Variant) -> int:
    return sum(
        server.client().info("stats")["total_reads_processed"] for server in variant.servers
    )


def _by_store(stack: ExitStack) -> list[Variant]:
    one, durable = "one server", "one server that fsyncs"
    variants = [
        _store_variant(one, one, [stack.enter_context(RedisServer())]),
        _store_variant(durable, one, [stack.enter_context(RedisServer(*DURABLE))]),
    ]
    for replicas, waits in ((1, (1,)), (2, (1, 2))):
        servers = [stack.enter_context(RedisServer(*AT_ONCE)) for _ in range(1 + replicas)]
        primary, *others = servers
        follow(primary, dict.fromkeys(others, primary.port))
        for wait in waits:
            name = f"`wait_replicas={wait}`, of {replicas}"
            variants.append(_store_variant(name, one, servers, wait_replicas=wait))
    return variants


def _store_variant(name: str, base: str, servers: list[RedisServer], **options) -> Variant:
    store = open_store(servers[0].url, options)

    def claim(key: str) -> bool:
        return store.claim(key, os.urandom(16), NO_FINGERPRINT, TTL, 0) == Claimed()

    return Variant(name, base, claim, servers)


def _by_redlock(stack: ExitStack) -> list[Variant]:
    base = "RedLock over 1"
    memory = [stack.enter_context(RedisServer()) for _ in range(5)]
    disk = [stack.enter_context(RedisServer(*DURABLE)) for _ in range(3)]
    sizes = {f"RedLock over {size}": memory[:size] for size in (1, 3, 5)}
    variants = []
    for name, servers in {**sizes, "RedLock over 3 that fsync": disk}.items():
        lock = RedLock([(HOST, server.port) for server in servers])
        stack.callback(lock.close)

        def claim(key: str, lock=lock) -> bool:
            return lock.claim(key, TTL) is not None

        variants.append(Variant(name, base, claim, servers))
    return variants
