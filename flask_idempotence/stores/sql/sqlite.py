"""SQLite: a file that the processes of one machine share. It has one writer at a time."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Engine,
    NullPool,
    Pool,
    bindparam,
    delete,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects import sqlite

from ...errors import ConfigurationError, StoreError
from ..base import CLAIMED, ClaimOutcome, Outcome, Renewal
from ..facts import DatabaseFacts
from .dialect import DEADLINE, Dialect, Trouble
from .rows import outcome_of
from .schema import count_expired, what_is_missing
from .statements import (
    CLAIMED_ANEW,
    IN_THE_WAY,
    IS_RENEWABLE,
    MAY_CLAIM,
    NEW_CLAIM,
    OK,
    RENEWED,
    STALE,
)
from .table import milliseconds, now, table

OLDEST = (3, 35)
"""The first that returns what it has written."""

_row = table.c

_NOT_READY = ("no such table", "no such column", "has no column named", "ON CONFLICT clause")
_DURABLE = {1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class SQLite(Dialect):
    """SQLite in a file, by way of the `sqlite3` of Python's library."""

    def __init__(self) -> None:
        super().__init__(sqlite.insert)
        self.forget()
        self._claim = self._put(NEW_CLAIM, MAY_CLAIM, CLAIMED_ANEW)
        self._renew = update(table).values(RENEWED).where(IS_RENEWABLE).returning(_row.key)
        doomed = (
            select(_row.key)
            .where(_row.expires <= now())
            .limit(bindparam("most", type_=BigInteger()))
        )
        self._prune = delete(table).where(_row.key.in_(doomed))

    def check(self, engine: Engine) -> None:
        """Return if the database is a file, and the library new enough."""
        database = engine.url.database or ""
        told = (database, *map(str, engine.url.query.items()))
        if not database or any(":memory:" in part or "memory" in part for part in told[1:]):
            raise _in_memory()
        if ":memory:" in database or "mode=memory" in database:
            raise _in_memory()
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigurationError(
                f"SQLite {sqlite3.sqlite_version} is too old for the SQL store: it takes "
                f"{'.'.join(map(str, OLDEST))} or later."
            )

    def _take(self, connection: Connection, values: dict[str, Any]) -> ClaimOutcome | None:
        # Looking first costs microseconds, and spares repeats the wait for the one writer.
        row = connection.execute(IN_THE_WAY, values).first()
        if row is not None:
            return outcome_of(row, values["this_fingerprint"])
        with self.turn(connection):
            return CLAIMED if connection.execute(self._claim, values).first() else None

    def renew(self, connection: Connection, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Begin the leases of live claims anew, all in one transaction."""
        with self.turn(connection):
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

    def prune(self, connection: Connection, most: int) -> int:
        """Remove rows that have expired."""
        return connection.execute(self._prune, {"most": most}).rowcount

    def count_all(self, connection: Connection) -> int | None:
        """Return how many rows there are."""
        return connection.execute(select(func.count()).select_from(table)).scalar_one()

    def connects_at_once(self, pool: Pool) -> bool:
        """Whether the pool makes a connection for everybody who asks."""
        return isinstance(pool, NullPool)

    @contextmanager
    def turn(self, connection: Connection) -> Iterator[None]:
        """Hold the pen: who waits for a thread of this process need not look again and again."""
        left = connection.info[DEADLINE] - time.monotonic()
        if not self._pen.acquire(timeout=max(0, left)):
            raise StoreError("TimeoutError: The database is being written to.", sent=False)
        try:
            left = connection.info[DEADLINE] - time.monotonic()
            _wait_for_others(connection.connection.dbapi_connection, left)
            yield
        finally:
            self._pen.release()

    def forget(self) -> None:
        """Forget who holds the pen."""
        self._pen = threading.Lock()

    def prepare(self, connection: Any, seconds: float, info: dict[Any, Any]) -> None:
        """Limit the wait for another writer. Neither this nor anything else stays in the file."""
        del info
        _wait_for_others(connection, seconds)

    def trouble(self, error: BaseException) -> Trouble:
        """Return what an error means."""
        name = getattr(error, "sqlite_errorname", "SQLITE_IOERR")
        if name == "SQLITE_ERROR" and any(words in str(error) for words in _NOT_READY):
            return Trouble.NOT_READY
        return Trouble.UNKNOWN if name.startswith("SQLITE_IOERR") else Trouble.REFUSED

    def facts(self, connection: Connection) -> DatabaseFacts:
        """Return what the database says of itself."""
        missing = what_is_missing(connection)
        journal = connection.execute(text("PRAGMA journal_mode")).scalar_one()
        synchronous = connection.execute(text("PRAGMA synchronous")).scalar_one()
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


def _wait_for_others(connection: Any, seconds: float) -> None:
    connection.execute(f"PRAGMA busy_timeout = {max(1, round(seconds * 1000))}")


def _in_memory() -> ConfigurationError:
    return ConfigurationError(
        "The SQL store needs SQLite in a file, such as sqlite:////var/lib/app/app.db: of a "
        "database in memory every connection has its own, which no other sees. For one process, "
        "memory:// does it."
    )
