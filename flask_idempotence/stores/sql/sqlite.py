"""SQLite: a file that the processes of one machine share. It has one writer at a time."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.compiler import compiles

from ...errors import ConfigurationError, StoreError
from ..process import call_in_children
from .dialect import NO_CONTEXT, OLDEST, Dialect, Info, StoreConnection, Trouble
from .statements import now

# A connection caches so many KiB of pages: those of one batch of pruning. The default is 2000,
# though each write of another connection makes them useless.
_PAGES = 512

_NOT_READY = (
    *("no such table", "no such column", "has no column named", "ON CONFLICT clause"),
    "NOT NULL constraint failed",  # the column is not ours
)


class SQLite(Dialect):
    _schema = sa.text("SELECT 'main'")  # the file, beside attached and temporary ones
    # In WAL mode, NORMAL may lose the last commits when the power fails.
    # https://www.sqlite.org/pragma.html#pragma_synchronous
    _facts = sa.text(
        "SELECT 'SQLite' AS product, sqlite_version() AS version, NULL AS clock, "
        "synchronous >= CASE journal_mode WHEN 'wal' THEN 2 ELSE 1 END "
        "AND journal_mode NOT IN ('off', 'memory') AS survives_crash, "
        "'journal_mode is ' || journal_mode || ', synchronous is ' || CASE synchronous "
        "WHEN 1 THEN 'NORMAL' WHEN 2 THEN 'FULL' WHEN 3 THEN 'EXTRA' ELSE 'OFF' END AS durability "
        "FROM pragma_journal_mode, pragma_synchronous"
    )

    def __init__(self) -> None:
        super().__init__(sqlite.insert)
        self._renew_lock()
        call_in_children(self._renew_lock)

    def check(self, engine: sa.Engine) -> None:
        database, query = engine.url.database or "", str(engine.url.query)
        in_memory = (":memory:" in database, "mode=memory" in database, "memory" in query)
        if not database or any(in_memory):
            raise ConfigurationError(
                "The SQL store needs SQLite in a file, such as sqlite:////var/lib/app/app.db: a "
                "database in memory belongs to one connection, and no other sees it. For one "
                "process, use memory://; for tests of within=, the URL of the pytest fixture "
                "idempotence_database."
            )
        if sqlite3.sqlite_version_info < OLDEST["SQLite"]:
            raise ConfigurationError(
                f"SQLite {sqlite3.sqlite_version} is too old for the SQL store: it needs "
                f"{'.'.join(map(str, OLDEST['SQLite']))} or later."
            )

    def operation(
        self, connection: StoreConnection, *, writes: bool
    ) -> AbstractContextManager[None]:
        if writes:
            return self._write_lock(connection)
        _limit_wait(connection)
        return NO_CONTEXT

    @contextmanager
    def _write_lock(self, connection: StoreConnection) -> Iterator[None]:
        # A thread that waits for another one of this process need not poll the file's lock.
        lock = self._lock
        if not lock.acquire(timeout=max(0, connection.deadline - time.monotonic())):
            raise StoreError("TimeoutError: The database is being written to.", sent=False)
        try:
            _limit_wait(connection)
            yield
        finally:
            lock.release()

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def prepare(self, connection: DBAPIConnection, seconds: float, info: Info) -> None:
        """Limit the memory, which leaves nothing in the file; each operation limits its wait."""
        del seconds, info
        connection.executescript(f"PRAGMA cache_size = -{_PAGES}")

    def trouble(self, error: BaseException) -> Trouble:
        name = getattr(error, "sqlite_errorname", "SQLITE_IOERR")
        if any(words in str(error) for words in _NOT_READY):
            return Trouble.NOT_READY
        return Trouble.UNKNOWN if name.startswith("SQLITE_IOERR") else Trouble.REFUSED


@compiles(now, "sqlite")
def _now(*_: object, **__: object) -> str:
    # unixepoch('subsec') would need 3.42. Of a Julian day, a double knows the millisecond.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


def _limit_wait(connection: StoreConnection) -> None:
    left = connection.deadline - time.monotonic()
    # After `execute`, the driver would keep a prepared statement for each number, up to 128.
    connection.driver.executescript(f"PRAGMA busy_timeout = {max(1, round(left * 1000))}")
