"""A store in a table: every operation is one conditional statement, or two of which one reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from ...errors import ConfigurationError
from ..base import (
    ClaimOutcome,
    Completion,
    Entry,
    InspectableStore,
    Outcome,
    Renewal,
    TokenOutcome,
)
from ..facts import DatabaseFacts
from ..pruning import BATCH, Pruning
from . import statements
from .connection import DatabaseConnection
from .dialect import Dialect, Trouble, trouble_of
from .executor import Executor, cause_of, store_error
from .mysql import MySQL
from .pool import twin_of
from .postgresql import PostgreSQL
from .sqlite import SQLite
from .table import TOKEN, TOKEN_AGAIN, create, ddl, milliseconds

_DIALECTS: dict[str, Callable[[], Dialect]] = {
    "sqlite": SQLite,
    "postgresql": PostgreSQL,
    "mysql": MySQL,
    "mariadb": MySQL,
}
"""The databases, by SQLAlchemy's name of their dialect."""

_PAGE = 500
"""Keys that a scan reads at a time."""


class SqlStore(InspectableStore):
    """Claims, records and tokens in a table of SQLite, PostgreSQL, MySQL or MariaDB.

    `flask idempotence init-db` or a migration makes the table; the store never does.

    Args:
        engine: the application's `sqlalchemy.Engine`, then an attribute. Connections are made as
            it makes them, in a pool of the same kind; the engine is neither used nor altered.
        deadline: seconds that an operation may take in all.

    Raises:
        ConfigurationError: the database is not supported, or is SQLite in memory.
    """

    def __init__(self, engine: Engine, *, deadline: float = 1.0) -> None:
        is_number = isinstance(deadline, int | float) and not isinstance(deadline, bool)
        if not is_number or not 0 < deadline <= threading.TIMEOUT_MAX:
            raise ConfigurationError("deadline must be a number of seconds greater than 0.")
        self._dialect = _dialect_of(engine)
        self.engine = engine
        self._executor = Executor(engine, self._dialect, deadline)
        self._schema: str | None = None
        self._pruning = Pruning(self.prune)

    def claim(
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, keep: float
    ) -> ClaimOutcome:
        values = {
            "this_key": key,
            "this_owner": owner,
            "this_fingerprint": fingerprint,
            "lease": milliseconds(lease),
            "keep": round(keep * 1000),
        }
        outcome = self._executor.run(self._dialect.claim, values, writes=False)
        self._pruning.count()
        return outcome

    def renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Restart the leases of live claims, in one round trip and transaction."""
        return self._executor.run(self._dialect.renew, renewals) if renewals else []

    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, keep: float
    ) -> Outcome:
        completion = Completion(key, owner, fingerprint, record, keep)
        return self._executor.run(self._dialect.complete, completion)

    def complete_in(
        self,
        connection: Connection,
        key: str,
        owner: bytes,
        fingerprint: bytes,
        record: bytes,
        keep: float,
    ) -> Outcome:
        """Replace the claim by a record within the transaction of a connection, if it commits.

        Args:
            connection: to the store's database. It is neither committed nor rolled back.
            key: the store key.
            owner: the claim's.
            fingerprint: the claim's.
            record: the value to remember.
            keep: for how many seconds.

        Returns:
            STALE where the key is another owner's: then the transaction must be rolled back.

        Raises:
            StoreNotReady: the table is missing, or is another one.
            sqlalchemy.exc.SQLAlchemyError: anything else, as the connection raises it.
        """
        completion = Completion(key, owner, fingerprint, record, keep)
        try:
            return self._dialect.complete(DatabaseConnection(connection, self._schema), completion)
        except DBAPIError as error:
            if trouble_of(error, self._dialect) is not Trouble.NOT_READY:
                raise
            self._schema = None  # it may have been moved
            raise store_error(error, Trouble.NOT_READY, sent=False) from error.orig

    def know_schema(self) -> None:
        """Look up, once, which schema the claims are in, for `complete_in`."""
        if self._schema is None:
            self._schema = self._executor.run(self._dialect.schema, writes=False)

    def look_up(self, key: str, owner: bytes) -> str | None:
        """Return the kind of an owner's row at a key: `"claim"`, `"record"`, or None.

        After a COMMIT whose answer was lost it finds the outcome: it waits, within the
        deadline, until the transaction that has locked the row has ended.
        """
        return self._executor.run(self._dialect.look_up, key, owner, writes=False)

    def release(self, key: str, owner: bytes) -> Outcome:
        return self._executor.run(self._dialect.release, key, owner)

    def put_token(self, key: str, subject: bytes, ttl: float, *, again: bool = False) -> None:
        values = {
            "this_key": key,
            "this_owner": subject,
            "this_kind": TOKEN_AGAIN if again else TOKEN,
            "keep": milliseconds(ttl),
        }
        self._executor.run(self._dialect.put_token, values, repeatable=False)
        self._pruning.count()

    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        return self._executor.run(self._dialect.take_token, key, subject, repeatable=False)

    def peek_all(self, keys: Sequence[str]) -> list[Entry | None]:
        return self._executor.inspect(statements.peek, keys, writes=False) if keys else []

    def scan(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that begin with `prefix`, in order, page by page."""
        last = ""
        while True:
            keys = self._executor.inspect(statements.scan, prefix, last, _PAGE, writes=False)
            yield from (key for key in keys if key.startswith(prefix))
            if len(keys) < _PAGE:
                return
            last = keys[-1]

    def remove(self, key: str) -> None:
        self._executor.inspect(statements.remove, key)

    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        return self._executor.run(self._dialect.discard, seen, repeatable=False) if seen else []

    def prune(self, most: int = BATCH) -> int:
        """Remove rows that have expired, `most` at the most; returns how many."""
        return self._executor.run(self._dialect.prune, most)

    def count_all(self) -> int | None:
        """Return roughly how many rows there are; None where the database has not counted them."""
        return self._executor.inspect(self._dialect.count_all, writes=False)

    def facts(self) -> Sequence[DatabaseFacts]:
        return [self._executor.inspect(self._dialect.facts, writes=False)]

    def ping(self) -> None:
        """Return if the database answers and has the table."""
        self._executor.inspect(statements.ping, writes=False)

    def close(self) -> None:
        """Close the store's connections; its next operation opens new ones."""
        self._executor.pool.close()

    def create_table(self) -> bool:
        """Create the table where there is none of that name, and return whether that was so.

        All of it or nothing, and without a deadline.
        """
        engine = twin_of(self.engine)
        try:
            with engine.begin() as connection:
                return create(connection)
        except Exception as error:  # noqa: BLE001 - drivers raise their sockets' errors, too
            trouble = trouble_of(error, self._dialect)
            raise store_error(error, trouble, sent=True) from cause_of(error)
        finally:
            engine.dispose()

    def ddl(self) -> str:
        return ddl(self.engine.dialect)


def _dialect_of(engine: Engine) -> Dialect:
    if not isinstance(engine, Engine):
        raise ConfigurationError(
            "SqlStore takes a sqlalchemy.Engine. (The sync_engine of an AsyncEngine cannot be "
            "used by other threads: make an engine with create_engine.)"
        )
    if engine.dialect.is_async:
        raise ConfigurationError("The engine's driver must be synchronous.")
    if engine.dialect.name not in _DIALECTS:
        raise ConfigurationError(
            f"The SQL store supports {', '.join(_DIALECTS)}, not {engine.dialect.name}."
        )
    dialect = _DIALECTS[engine.dialect.name]()
    dialect.check(engine)
    return dialect
