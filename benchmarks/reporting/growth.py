"""How it grows with live keys: first requests and replays beside a thousand to a million."""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import redis
from measuring.timing import BLOCK
from modes.key_mode import TTL
from reporting.key_requests import compare, guarded
from reporting.stores import MEMORY, POSTGRESQL, REDIS, Stores, requests_for

from flask_idempotence import MemoryStore
from flask_idempotence.stores import Store

KEYS = (1_000, 10_000, 100_000, 1_000_000)
NAMES = "idempotence:2:key:create_order:"
"""What the keys begin with, like those of the requests that are measured."""

RECORD = bytes(100)
STORED = b"D" + bytes(32) + RECORD
"""A completed record as the scripts keep it: a letter, owner, fingerprint, record."""


@dataclass
class Filled:
    """A store that is filled with remembered answers.

    Attributes:
        name: what it is called in the report.
        store: its URI, or the store itself.
        add: adds so many keys.
        used: returns the bytes that the store takes, or None.
    """

    name: str
    store: str | Store
    add: Callable[[int], None]
    used: Callable[[], int | None] = lambda: None


def measure(stores: Stores, requests: int, most: int) -> list[dict]:
    """Measure first requests and replays beside more and more live keys, up to `most`."""
    rows = []
    for filled in _stores(stores):
        app, there, sent = guarded(filled.store), 0, requests_for(filled.name, requests)
        for count in (count for count in KEYS if count <= most):
            print(f"... {filled.name}: filling up to {count} keys", file=sys.stderr, flush=True)
            filled.add(max(0, count - there))
            there = max(count, there)
            used = filled.used()
            row = {"store": filled.name, "keys": count, "requests": sent}
            if used is not None:
                row["bytes a key"] = round(used / there)
            rows.append(row | compare(f"{count} keys, {filled.name}", app, sent))
            there += 2 * (sent + min(sent, BLOCK))  # what was measured stays there
    return rows


def _stores(stores: Stores) -> Iterator[Filled]:
    """Yield a store after the other; what is in one is removed before the next."""
    memory = MemoryStore(max_entries=2 * KEYS[-1])
    yield _memory(memory)
    memory.clear("")  # a million objects would slow down whatever is measured after it
    with stores.redis.client() as client:
        client.flushall()
        yield _redis(stores.redis.url, client)
        client.flushall()
    for name in stores.databases():
        yield _table(name, stores.new_table(name))


def _memory(store: MemoryStore) -> Filled:
    def add(count: int) -> None:
        for _ in range(count):
            store.complete(NAMES + os.urandom(16).hex(), bytes(16), bytes(16), RECORD, TTL)

    return Filled(MEMORY, store, add)


def _redis(uri: str, client: redis.Redis) -> Filled:
    def add(count: int) -> None:
        while count > 0:
            batch = min(count, 10_000)
            pipeline = client.pipeline(transaction=False)
            for _ in range(batch):
                pipeline.set(NAMES + os.urandom(16).hex(), STORED, ex=TTL)
            pipeline.execute()
            count -= batch

    return Filled(REDIS, uri, add, lambda: client.info("memory")["used_memory"])


def _table(name: str, uri: str) -> Filled:
    from sql_store import DAY, fill  # noqa: PLC0415 - needs SQLAlchemy
    from sqlalchemy import create_engine, text  # noqa: PLC0415

    from flask_idempotence import SqlStore  # noqa: PLC0415

    store = SqlStore(create_engine(uri), deadline=10)
    size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    if name == POSTGRESQL:
        size = "SELECT pg_total_relation_size('flask_idempotence')"

    def used() -> int:
        with store.engine.connect() as connection:
            return connection.execute(text(size)).scalar_one()

    return Filled(name, store, lambda count: fill(store, count, DAY, "create_order"), used)
