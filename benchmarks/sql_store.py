"""The store in a table: against a route with the same statements by hand, and at 300,000 rows.

    uv run python benchmarks/sql_store.py [--requests N] [--rows N] [--only KIND]

PostgreSQL and MariaDB are started for it, flushing each commit to the disk as they do by default;
SQLite is a file in a temporary directory, in its default journal mode. What is compared is
interleaved, request by request or claim by claim. PostgreSQL logs every wait for a lock of more
than 50 ms; MariaDB counts its waits for locks, and deadlocks.
"""

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from helpers.servers.mariadb import MariaDbServer
from helpers.servers.postgres import PostgresServer
from measuring.timing import Spread, interleave, ratio
from modes import key_mode, lock_mode, refusals
from modes.bare_mysql import NOW
from modes.bare_table import CLOCKS
from sqlalchemy import create_engine, text

from flask_idempotence import SqlStore
from flask_idempotence.stores.base import NO_FINGERPRINT
from flask_idempotence.stores.pruning import BATCH, REST

ROWS = {
    "postgresql": "INSERT INTO flask_idempotence (key, kind, owner, fingerprint, expires, data) "
    "SELECT 'idempotence:2:key:' || :name || ':' || md5(random()::text || n), 'record', "
    "'\\x00', '\\x00', {now} + :lasts, decode(repeat('ab', 100), 'hex') "
    "FROM generate_series(1, :rows) AS n",
    "mysql": "INSERT INTO flask_idempotence (`key`, kind, owner, fingerprint, expires, data) "
    "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000) "
    "SELECT CONCAT('idempotence:2:key:', :name, ':', SHA2(CONCAT(RAND(), a.n, '-', b.n), 224)), "
    "'record', x'00', x'00', {now} + :lasts, REPEAT('a', 100) "
    "FROM s AS a CROSS JOIN s AS b WHERE (a.n - 1) * 1000 + b.n <= :rows",
    "sqlite": "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < :rows) "
    "INSERT INTO flask_idempotence (key, kind, owner, fingerprint, expires, data) "
    "SELECT 'idempotence:2:key:' || :name || ':' || lower(hex(randomblob(16))), 'record', "
    "x'00', x'00', {now} + :lasts, zeroblob(100) FROM s",
}
DAY = 86_400_000
MODES = (
    ("lock, first", lock_mode.ours, lock_mode.by_hand),
    ("lock, refused", refusals.our_lock, refusals.lock_by_hand),
    ("key, first", key_mode.ours, key_mode.by_hand),
    ("key, replay", key_mode.our_replay, key_mode.replay_by_hand),
)
AIMS = {"postgresql": 1.10, "sqlite": 1.10, "mysql": 1.20}


def compare(url: str, requests: int) -> None:
    """Print what a guarded route takes, against the same by hand."""
    kind = url.partition(":")[0].partition("+")[0]
    aim = AIMS[kind]
    for mode, make_ours, make_theirs in MODES:
        ours, theirs = make_ours(url), make_theirs(url)
        interleave(f"{kind} {mode}", [ours, theirs], requests)
        found = ratio(ours, theirs)
        spent = [statistics.median(each.nanoseconds) / 1e6 for each in (ours, theirs)]
        print(
            f"{kind:10} {mode:13} ours/by hand {found.median:.2f} (p10 {found.p10:.2f}, "
            f"p90 {found.p90:.2f}), ours {spent[0]:.2f} ms, by hand {spent[1]:.2f} ms, "
            f"aim {aim:.2f}: {'kept' if found.median <= aim else 'MISSED'}"
        )


def fill(store: SqlStore, rows: int, lasts: int, name: str) -> None:
    """Put rows into a table that expire in so many milliseconds."""
    kind = store.engine.dialect.name
    with store.engine.begin() as connection:
        values = {"rows": rows, "lasts": lasts, "name": name}
        connection.execute(text(ROWS[kind].format(now={**CLOCKS, "mysql": NOW}[kind])), values)
    if kind == "postgresql":
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE flask_idempotence"))


def timed_claim(store: SqlStore) -> float:
    """Claim a new key; return the milliseconds."""
    key = f"idempotence:2:lock:order:{os.urandom(16).hex()}"
    started = time.perf_counter()
    store.claim(key, os.urandom(16), NO_FINGERPRINT, 30, 0)
    return (time.perf_counter() - started) * 1000


def at_size(empty_url: str, full_url: str, rows: int, claims: int) -> None:
    """Print what a claim takes in a full table, against an empty one."""
    stores = [SqlStore(create_engine(url), deadline=10) for url in (empty_url, full_url)]
    for store in stores:
        store.create_table()
    fill(stores[1], rows, DAY, "there")
    times = [[], []]
    for number in range(claims + 50):
        for which in (0, 1) if number % 2 else (1, 0):
            took = timed_claim(stores[which])
            if number >= 50:
                times[which].append(took)
    empty, full = (statistics.median(each) for each in times)
    kind = stores[0].engine.dialect.name
    print(
        f"{kind:10} claim: {empty:.3f} ms empty, {full:.3f} ms at {rows} rows: {full / empty:.2f}"
    )
    prune_beside_claims(stores[1], min(rows // 10, 30_000), kind)
    for store in stores:
        store.close()


def prune_beside_claims(store: SqlStore, rows: int, kind: str) -> None:
    """Print what claims take while expired rows are removed, as the store removes them."""
    alone = [timed_claim(store) for _ in range(500)]
    fill(store, rows, -DAY, "expired")
    batches, beside = [], []

    def prune() -> None:
        count = 100
        while count:
            started = time.perf_counter()
            count = store.prune(BATCH)
            batches.append((time.perf_counter() - started) * 1000)
            time.sleep(REST)

    thread = threading.Thread(target=prune)
    thread.start()
    while thread.is_alive():
        beside.append(timed_claim(store))
    thread.join()
    for name, times in (("alone", alone), ("pruning", beside), ("(batch)", batches)):
        spread = Spread.of(times)
        print(
            f"{kind:10} {name:8} median {spread.median:.2f} ms, p90 {spread.p90:.2f}, "
            f"longest {max(times):.1f}, of {len(times)}"
        )


def on_postgres(servers: ExitStack) -> tuple[Callable[[], str], Callable[[], str]]:
    """Start a PostgreSQL; return what makes a database in it, and what reports its waits."""
    settings = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "128MB"}
    settings |= {"log_lock_waits": "on", "deadlock_timeout": "50ms"}
    server = servers.enter_context(PostgresServer(**settings))
    return (
        server.new_database,
        lambda: f"waits for a lock of more than 50 ms: {server.log.count('still waiting for')}",
    )


def on_mysql(servers: ExitStack) -> tuple[Callable[[], str], Callable[[], str]]:
    """Start a MariaDB; return what makes a database in it, and what reports its waits."""
    settings = {"innodb_flush_log_at_trx_commit": 1, "innodb_flush_method": "O_DIRECT"}
    settings |= {"innodb_doublewrite": 1, "innodb_buffer_pool_size": "128M"}
    server = servers.enter_context(MariaDbServer(**settings))

    def report() -> str:
        status = dict(server.execute("SHOW GLOBAL STATUS LIKE 'Innodb%'"))
        waits, longest = (status[f"Innodb_row_lock_{name}"] for name in ("waits", "time_max"))
        deadlocks = status.get("Innodb_deadlocks", "not counted")
        return f"waits for a lock: {waits}, longest {longest} ms; deadlocks: {deadlocks}"

    return server.new_database, report


def on_sqlite(servers: ExitStack) -> tuple[Callable[[], str], Callable[[], str]]:
    """Return what names a file, and nothing to report."""
    directory = servers.enter_context(tempfile.TemporaryDirectory())
    return lambda: f"sqlite:///{directory}/{os.urandom(4).hex()}.db", lambda: "no server"


KINDS = {"postgresql": on_postgres, "mysql": on_mysql, "sqlite": on_sqlite}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--only", choices=KINDS, action="append")
    asked = parser.parse_args()
    for kind in asked.only or KINDS:
        with ExitStack() as servers:
            make, report = KINDS[kind](servers)
            url = make()
            SqlStore(create_engine(url)).create_table()
            compare(url, asked.requests)
            at_size(make(), make(), asked.rows, asked.requests)
            print(f"{kind:10} {report()}")


if __name__ == "__main__":
    main()
