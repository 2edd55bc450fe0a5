"""Claims in a table: among many rows against few, and while expired rows are removed."""

import os
import statistics
import threading
import time

from measuring.stores import Stores
from measuring.timing import Spread
from modes.bare_table import CLOCKS
from sqlalchemy import create_engine, text

from flask_idempotence import SqlStore
from flask_idempotence.stores.base import NO_FINGERPRINT
from flask_idempotence.stores.sql.store import BATCH, REST

ROWS = {
    "postgresql": "INSERT INTO flask_idempotence (key, kind, owner, fingerprint, expires, data) "
    "SELECT 'idempotence:2:key:' || :name || ':' || md5(random()::text || n), 'record', "
    "'\\x00', '\\x00', {now} + :lasts, decode(repeat('ab', 100), 'hex') "
    "FROM generate_series(1, :rows) AS n",
    "sqlite": "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < :rows) "
    "INSERT INTO flask_idempotence (key, kind, owner, fingerprint, expires, data) "
    "SELECT 'idempotence:2:key:' || :name || ':' || lower(hex(randomblob(16))), 'record', "
    "x'00', x'00', {now} + :lasts, zeroblob(100) FROM s",
}
DAY = 86_400_000
WARMING = 50


def measure(name: str, stores: Stores, rows: int, claims: int) -> None:
    """Print what a claim takes in a full table, against an empty one, and beside pruning."""
    empty, full = (SqlStore(create_engine(stores.new_table(name)), deadline=10) for _ in range(2))
    _fill(full, rows, DAY, "there")
    times = {empty: [], full: []}
    for number in range(claims + WARMING):
        for store in (empty, full) if number % 2 else (full, empty):
            times[store].append(_timed_claim(store))
    few, many = (statistics.median(times[store][WARMING:]) for store in (empty, full))
    print(f"{name:10} claim: {few:.3f} ms empty, {many:.3f} ms at {rows} rows: {many / few:.2f}")
    _prune_beside_claims(name, full, min(rows // 10, 30_000))
    for store in (empty, full):
        store.close()
        store.engine.dispose()


def _fill(store: SqlStore, rows: int, lasts: int, name: str) -> None:
    """Put rows into a table that expire in so many milliseconds."""
    kind = store.engine.dialect.name
    with store.engine.begin() as connection:
        values = {"rows": rows, "lasts": lasts, "name": name}
        connection.execute(text(ROWS[kind].format(now=CLOCKS[kind])), values)
    if kind == "postgresql":
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE flask_idempotence"))


def _timed_claim(store: SqlStore) -> float:
    """Claim a new key; return the milliseconds."""
    key = f"idempotence:2:lock:order:{os.urandom(16).hex()}"
    started = time.perf_counter()
    store.claim(key, os.urandom(16), NO_FINGERPRINT, 30, 0)
    return (time.perf_counter() - started) * 1000


def _prune_beside_claims(name: str, store: SqlStore, rows: int) -> None:
    """Print what claims take while expired rows are removed, as the store removes them."""
    alone = [_timed_claim(store) for _ in range(500)]
    _fill(store, rows, -DAY, "expired")
    batches, beside = [], []

    def prune() -> None:
        count = 1
        while count:
            started = time.perf_counter()
            count = store.prune(BATCH)
            batches.append((time.perf_counter() - started) * 1000)
            time.sleep(REST)

    thread = threading.Thread(target=prune)
    thread.start()
    while thread.is_alive():
        beside.append(_timed_claim(store))
    for what, times in (("alone", alone), ("pruning", beside), ("(batch)", batches)):
        spread = Spread.of(times)
        print(
            f"{name:10} {what:8} median {spread.median:.2f} ms, p90 {spread.p90:.2f}, "
            f"longest {max(times):.1f}, of {len(times)}"
        )
