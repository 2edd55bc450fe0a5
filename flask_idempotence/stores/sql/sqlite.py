"""SQLite: a file that the processes of one machine share. It has one writer at a time."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

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
from .connection import Statement, StoreConnection, Values
from .dialect import NO_CONTEXT, OK, STALE, Dialect, Info, Trouble, outcome_of
from .table import count_expired, milliseconds, missing_parts, now, table

OLDEST = (3, 35)
"""The first with RETURNING."""

_row = table.c

_WAIT = "flask_idempotence wait"
"""Key in the `info` of a connection: the seconds that it waits for another writer."""

_NEAR = 0.01
"""Seconds by which that may differ from the time that is left."""

_PAGES = 512
"""KiB of pages that a connection keeps: those of one batch of pruning. SQLite's default is 2000,
though each write of another connection makes them useless."""

_NOT_READY = ("no such table", "no such column", "has no column named", "ON CONFLICT clause")
_DURABLE = {1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class SQLite(Dialect):
    """SQLite in a file, by way of the `sqlite3` of Python's library."""

    def __init__(self) -> None:
        super().__init__(sqlite.insert)
        self._in_the_way = Statement(statements.IN_THE_WAY)
        claim = self._upsert(statements.NEW_CLAIM, statements.MAY_CLAIM)
        self._claim = Statement(claim.returning(_row.key))
        self._renew = Statement(
            sa.update(table)
            .values(statements.renewed(statements.LEASE))
            .where(statements.IS_OWN, statements.IS_RENEWABLE)
            .returning(_row.key)
        )
        self._renew_lock()
        call_in_children(self._renew_lock)

    def check(self, engine: sa.Engine) -> None:
        database, query = engine.url.database or "", str(engine.url.query)
        in_memory = (":memory:" in database, "mode=memory" in database, "memory" in query)
        if not database or any(in_memory):
            raise ConfigurationError(
                "The SQL store needs SQLite in a file, such as sqlite:////var/lib/app/app.db: a "
                "database in memory belongs to one connection, and no other sees it. For one "
                "process, use memory://."
            )
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigurationError(
                f"SQLite {sqlite3.sqlite_version} is too old for the SQL store: it needs "
                f"{'.'.join(map(str, OLDEST))} or later."
            )

    def _claim_once(self, connection: StoreConnection, values: Values) -> ClaimOutcome | None:
        # Reading first costs microseconds, and spares repeats the wait for the one writer.
        row = connection.first(self._in_the_way, values)
        if row is not None:
            return outcome_of(row, values)
        with self._write_lock(connection):
            return CLAIMED if connection.first(self._claim, values) else None

    def renew(self, connection: StoreConnection, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Restart the leases of live claims, all in one transaction."""
        outcomes = []
        with connection.transaction("BEGIN IMMEDIATE"):
            for key, owner, lease in renewals:
                values = {"this_key": key, "this_owner": owner, "lease": milliseconds(lease)}
                outcomes.append(OK if connection.first(self._renew, values) else STALE)
        return outcomes

    def schema(self, connection: StoreConnection) -> str:
        """Return SQLite's name of the file, beside those of attached and temporary ones."""
        del connection
        return "main"

    def count_all(self, connection: Connection) -> int | None:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()

    def operation(
        self, connection: StoreConnection, *, writes: bool
    ) -> AbstractContextManager[None]:
        """Hold the write lock, if the operation begins with a write."""
        _limit_wait(connection)
        return self._write_lock(connection) if writes else NO_CONTEXT

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
        """Limit the wait for another writer, and the memory. Nothing of it stays in the file."""
        connection.executescript(f"PRAGMA cache_size = -{_PAGES}")
        _set_wait(connection, seconds, info)

    def trouble(self, error: BaseException) -> Trouble:
        name = getattr(error, "sqlite_errorname", "SQLITE_IOERR")
        if name == "SQLITE_ERROR" and any(words in str(error) for words in _NOT_READY):
            return Trouble.NOT_READY
        return Trouble.UNKNOWN if name.startswith("SQLITE_IOERR") else Trouble.REFUSED

    def facts(self, connection: Connection) -> DatabaseFacts:
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


def _limit_wait(connection: StoreConnection) -> None:
    seconds = connection.deadline - time.monotonic()
    # To set it takes longer than to read a row; a small difference is not worth it.
    if abs(connection.info[_WAIT] - seconds) > _NEAR:
        _set_wait(connection.driver, seconds, connection.info)


def _set_wait(connection: DBAPIConnection, seconds: float, info: Info) -> None:
    # Not by `execute`: the driver would keep a prepared statement for each number, up to 128.
    connection.executescript(f"PRAGMA busy_timeout = {max(1, round(seconds * 1000))}")
    info[_WAIT] = seconds
