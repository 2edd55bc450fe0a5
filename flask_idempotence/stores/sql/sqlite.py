"""SQLite: a file that the processes of one machine share. It has one writer at a time."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.compiler import compiles

from ...errors import ConfigurationError, StoreError
from ..base import CLAIMED, ClaimOutcome, Outcome, Renewal
from ..facts import DatabaseFacts
from ..process import call_in_children
from . import statements
from .dialect import DEADLINE, OK, STALE, Dialect, Info, Parameters, Trouble, outcome_of
from .table import count_expired, milliseconds, missing_parts, now, table

OLDEST = (3, 35)
"""The first with RETURNING."""

_row = table.c

_NOT_READY = ("no such table", "no such column", "has no column named", "ON CONFLICT clause")
_DURABLE = {1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class SQLite(Dialect):
    """SQLite in a file, by way of the `sqlite3` of Python's library."""

    def __init__(self) -> None:
        super().__init__(sqlite.insert)
        self._claim = self._upsert(
            statements.NEW_CLAIM, statements.MAY_CLAIM, statements.CLAIMED_ANEW
        ).returning(_row.key)
        self._renew = (
            sa.update(table)
            .values(statements.renewed(statements.LEASE))
            .where(statements.IS_RENEWABLE)
            .returning(_row.key)
        )
        self._renew_lock()
        call_in_children(self._renew_lock)

    def check(self, engine: sa.Engine) -> None:
        """Raise ConfigurationError if the database is not a file, or the library too old."""
        database, query = engine.url.database or "", str(engine.url.query)
        in_memory = (":memory:" in database, "mode=memory" in database, "memory" in query)
        if not database or any(in_memory):
            raise ConfigurationError(
                "The SQL store needs SQLite in a file, such as sqlite:////var/lib/app/app.db: a "
                "database in memory belongs to one connection, and no other sees it. For one "
                "process, memory:// does it."
            )
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigurationError(
                f"SQLite {sqlite3.sqlite_version} is too old for the SQL store: it takes "
                f"{'.'.join(map(str, OLDEST))} or later."
            )

    def _claim_once(self, connection: Connection, values: Parameters) -> ClaimOutcome | None:
        # Reading first costs microseconds, and spares repeats the wait for the one writer.
        row = connection.execute(statements.IN_THE_WAY, values).first()
        if row is not None:
            return outcome_of(row, values)
        with self._write_lock(connection):
            return CLAIMED if connection.execute(self._claim, values).first() else None

    def renew(self, connection: Connection, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Begin the leases of live claims anew, all in one transaction."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            outcomes = [self._renew_one(connection, *renewal) for renewal in renewals]
        except BaseException:
            connection.exec_driver_sql("ROLLBACK")
            raise
        connection.exec_driver_sql("COMMIT")
        return outcomes

    def _renew_one(self, connection: Connection, key: str, owner: bytes, lease: float) -> Outcome:
        values = {"this_key": key, "this_owner": owner, "lease": milliseconds(lease)}
        return OK if connection.execute(self._renew, values).first() else STALE

    def count_all(self, connection: Connection) -> int | None:
        """Return how many rows there are."""
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()

    def operation(self, connection: Connection, *, writes: bool) -> AbstractContextManager[None]:
        """Hold the write lock, if the operation begins with a write."""
        return self._write_lock(connection) if writes else nullcontext()

    @contextmanager
    def _write_lock(self, connection: Connection) -> Iterator[None]:
        # A thread that waits for another one of this process need not poll the file's lock.
        lock, deadline = self._lock, connection.info[DEADLINE]
        if not lock.acquire(timeout=max(0, deadline - time.monotonic())):
            raise StoreError("TimeoutError: The database is being written to.", sent=False)
        try:
            driver = connection.connection.dbapi_connection
            if driver is not None:
                _limit_wait(driver, deadline - time.monotonic())
            yield
        finally:
            lock.release()

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def prepare(self, connection: DBAPIConnection, seconds: float, info: Info) -> None:
        """Limit the wait for another writer. Neither this nor anything else stays in the file."""
        del info
        _limit_wait(connection, seconds)

    def trouble(self, error: BaseException) -> Trouble:
        """Return the effect of an error, by its name."""
        name = getattr(error, "sqlite_errorname", "SQLITE_IOERR")
        if name == "SQLITE_ERROR" and any(words in str(error) for words in _NOT_READY):
            return Trouble.NOT_READY
        return Trouble.UNKNOWN if name.startswith("SQLITE_IOERR") else Trouble.REFUSED

    def facts(self, connection: Connection) -> DatabaseFacts:
        """Return the library's version, the settings of the file, and its state."""
        missing = missing_parts(connection)
        journal = connection.execute(sa.text("PRAGMA journal_mode")).scalar_one()
        synchronous = connection.execute(sa.text("PRAGMA synchronous")).scalar_one()
        # In WAL mode, NORMAL may lose the last commits when the power fails.
        # https://www.sqlite.org/pragma.html#pragma_synchronous
        return DatabaseFacts(
            product="SQLite",
            version=sqlite3.sqlite_version_info,
            oldest=OLDEST,
            missing=missing,
            is_primary=True,
            survives_crash=synchronous >= (2 if journal == "wal" else 1)
            and journal not in ("off", "memory"),
            durability=f"journal_mode is {journal}, synchronous is "
            f"{_DURABLE.get(synchronous, 'OFF')}",
            expired=None if missing else count_expired(connection),
        )


@compiles(now, "sqlite")
def _now(*_: object, **__: object) -> str:
    # unixepoch('subsec') would need 3.42. Of a Julian day, a double knows the millisecond.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


def _limit_wait(connection: DBAPIConnection, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout = {max(1, round(seconds * 1000))}")
