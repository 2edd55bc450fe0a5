"""A store in a table: every operation is one conditional statement, or two of which one reads."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, TypeVarTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from ...errors import ConfigurationError, IdempotenceError, StoreError
from ..base import (
    ClaimOutcome,
    Entry,
    InspectableStore,
    Outcome,
    Renewal,
    TimeLimit,
    TokenOutcome,
    check_deadline,
    milliseconds,
)
from ..facts import DatabaseFacts
from ..process import CircuitBreaker, call_in_children, start_daemon
from . import statements
from .dialect import Dialect, StoreConnection, Trouble, Values, fail, trouble_of
from .mysql import MySQL
from .pool import ConnectionPool, twin_of
from .postgresql import PostgreSQL
from .sqlite import SQLite
from .statements import CLAIM, NAME, metadata, table

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_logger = logging.getLogger("flask_idempotence")

_DIALECTS: dict[str, Callable[[], Dialect]] = {
    "sqlite": SQLite,
    "postgresql": PostgreSQL,
    "mysql": MySQL,
    "mariadb": MySQL,
}

# After a conflict with another transaction, each new attempt waits so many seconds.
_PAUSES = tuple(0.005 * 2**number for number in range(5))

_PAGE = 500  # keys that a scan reads at a time
BATCH = 100  # rows that one statement of pruning removes: it locks them for milliseconds
REST = 0.02  # seconds between two batches, for other writers
EVERY = 500  # keys that this process writes between two rounds of pruning

_BATCHES = 20  # a round of pruning removes more than was written since the last one


_limit = TimeLimit()


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
        check_deadline(deadline)
        self._dialect = _dialect_of(engine)
        self.engine = engine
        self._deadline = deadline
        self._circuit = CircuitBreaker()
        on_late = self._circuit.probe_next
        self._pool = ConnectionPool(engine, self._dialect, deadline, on_late)
        weakref.finalize(self, self._pool.close)  # drivers warn of connections left open
        self._schema: str | None = None
        self._begin()
        call_in_children(self._begin)

    def _begin(self) -> None:
        self._written = 0
        self._is_pruning = False

    def claim(
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, hold_after_crash: float
    ) -> ClaimOutcome:
        values = _values(
            key, owner, fingerprint, lease=milliseconds(lease), life=round(hold_after_crash * 1000)
        )
        outcome = self._run(self._dialect.claim, values, writes=False)
        self._count_write()
        return outcome

    def renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        return self._run(self._dialect.renew, renewals) if renewals else []

    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, ttl: float
    ) -> Outcome:
        values = _values(key, owner, fingerprint, record=record, life=milliseconds(ttl))
        return self._run(self._dialect.complete, values)

    def complete_in(
        self,
        connection: Connection,
        key: str,
        owner: bytes,
        fingerprint: bytes,
        record: bytes,
        ttl: float,
    ) -> Outcome:
        """Replace the claim by a record within the transaction of a connection, if it commits.

        Args:
            connection: to the store's database. It is neither committed nor rolled back.
            key: the store key.
            owner: the claim's.
            fingerprint: the claim's.
            record: the value to remember.
            ttl: for how many seconds.

        Returns:
            STALE where the key is another owner's: then the transaction must be rolled back.

        Raises:
            StoreNotReady: the table is missing, or is another one.
            sqlalchemy.exc.SQLAlchemyError: anything else, as the connection raises it.
        """
        values = _values(key, owner, fingerprint, record=record, life=milliseconds(ttl))
        try:
            return self._dialect.complete_in(connection, self._schema, values)
        except DBAPIError as error:
            if trouble_of(error, self._dialect) is not Trouble.NOT_READY:
                raise
            self._schema = None  # it may have been moved
            fail(error, Trouble.NOT_READY, sent=False)

    def know_schema(self) -> None:
        """Look up, once, which schema the claims are in, for `complete_in`."""
        if self._schema is None:
            self._schema = self._run(self._dialect.schema, writes=False)

    def look_up(self, key: str, owner: bytes) -> str | None:
        """Return the kind of an owner's row at a key: `"claim"`, `"record"`, or None.

        After a COMMIT whose answer was lost it finds the outcome: it waits, within the
        deadline, until the transaction that has locked the row has ended.
        """
        values = {"this_key": key, "this_owner": owner}
        row = self._run(StoreConnection.first, statements.LOOK_UP, values, writes=False)
        return None if row is None else str(row[0])

    def release(self, key: str, owner: bytes) -> Outcome:
        return self._run(self._dialect.release, {"this_key": key, "this_owner": owner})

    def put_token(self, key: str, subject: bytes, ttl: float) -> None:
        values = {"this_key": key, "this_owner": subject, "life": milliseconds(ttl)}
        self._run(StoreConnection.send, self._dialect.put_token, values, repeatable=False)
        self._count_write()

    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        values = {"this_key": key, "this_owner": subject}
        return self._run(self._dialect.take_token, values, repeatable=False)

    def peek_all(self, keys: Sequence[str]) -> list[Entry | None]:
        found: dict[str, Entry] = {}
        for some in statements.in_parts(keys):
            for row in self._rows(statements.PEEK, {"keys": some}):
                lease = max(0, row.left) / 1000 if row.kind == CLAIM else None
                mark = row.kind.encode() + b"\0" + bytes(row.owner)
                found[row.key] = Entry(row.kind, row.expires_in / 1000, row.size, lease, mark)
        return [found.get(key) for key in keys]

    def scan(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that begin with `prefix`, in order, page by page."""
        place = {"after": "", "begin": prefix, "end": prefix + statements.LAST, "most": _PAGE}
        while True:
            keys = [key for (key,) in self._rows(statements.SCAN, place)]
            yield from (key for key in keys if key.startswith(prefix))
            if len(keys) < _PAGE:
                return
            place["after"] = keys[-1]

    def remove(self, key: str) -> None:
        self._run(StoreConnection.send, statements.REMOVE, {"this_key": key})

    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        return self._run(self._dialect.discard, seen, repeatable=False) if seen else []

    def prune(self, most: int = BATCH) -> int:
        """Remove rows that have expired, `most` at the most; returns how many."""
        return self._run(self._dialect.prune, most)

    def facts(self) -> Sequence[DatabaseFacts]:
        return [self._run(self._dialect.facts, writes=False)]

    def ping(self) -> None:
        """Return if the database answers and has the table, with all columns."""
        self._rows(sa.select(table).limit(0), {})

    def close(self) -> None:
        """Close the store's connections; its next operation opens new ones."""
        self._pool.close()

    def create_table(self) -> bool:
        """Create the table where there is none of that name, and return whether this call did.

        All of it or nothing, and without a deadline.
        """
        engine, may_look_again = twin_of(self.engine), True
        while True:
            try:
                with engine.begin() as connection:
                    is_missing = not sa.inspect(connection).has_table(NAME)
                    if is_missing:
                        metadata.create_all(connection, checkfirst=False)
                    return is_missing
            except Exception as error:  # noqa: BLE001 - drivers raise their sockets' errors, too
                # Another process may have made it meanwhile: the second look finds it.
                is_there = "CREATE TABLE" in str(getattr(error, "statement", ""))
                if not (is_there and may_look_again):
                    fail(error, trouble_of(error, self._dialect), sent=True)
                may_look_again = False

    def ddl(self) -> str:
        dialect = self.engine.dialect
        parts: list[ExecutableDDLElement] = [CreateTable(table), *map(CreateIndex, table.indexes)]
        return "\n".join(f"{str(part.compile(dialect=dialect)).strip()};" for part in parts)

    def _run(
        self,
        work: Callable[[StoreConnection, *Ts], T],
        *values: *Ts,
        writes: bool = True,
        repeatable: bool = True,
    ) -> T:
        """Carry out an operation on a connection, within the deadline.

        `writes`: it writes at once. `repeatable`: it is sent again where its effect is unknown.
        Every error, one of connecting included, is a `StoreError`.
        """
        began = time.monotonic()
        deadline = began + min(self._deadline, _limit.cap)
        counts = self._deadline <= _limit.cap  # a shorter one says little of the database
        if not self._circuit.allows():
            fail(PoolTimeout("The database does not answer."), Trouble.REFUSED, sent=False)
        pauses = {Trouble.UNKNOWN: [0.0] * repeatable, Trouble.CONFLICT: [*_PAUSES]}
        is_unsure = False
        while True:
            sent = False
            try:
                with (
                    self._pool.connection(deadline) as connection,
                    self._dialect.operation(connection, writes=writes),
                ):
                    sent = True
                    result = work(connection, *values)
                self._circuit.count(began, timed_out=False)
                return result
            except IdempotenceError:
                raise
            except Exception as error:  # noqa: BLE001 - drivers raise their sockets' errors, too
                trouble = trouble_of(error, self._dialect)
                is_unsure |= sent and trouble is Trouble.UNKNOWN
                left = pauses.get(trouble)
                if not left or time.monotonic() + left[0] >= deadline:
                    is_answer = sent and trouble is not Trouble.UNKNOWN
                    if counts:
                        timed_out = not is_answer and time.monotonic() >= deadline
                        self._circuit.count(began, timed_out=timed_out)
                    fail(error, trouble, sent=is_unsure)
                time.sleep(left.pop(0))

    def time_limit(self, seconds: float) -> AbstractContextManager[None]:
        return _limit.capped(seconds)

    def _rows(self, query: sa.Executable, values: Values) -> Sequence[sa.Row[Any]]:
        """Return the rows of a command's query."""
        return self._run(lambda to: to.sqlalchemy.execute(query, values).all(), writes=False)

    def _count_write(self) -> None:
        """Begin a round of pruning when enough keys were written."""
        self._written += 1  # a lost count does no harm, nor does a second thread
        if self._written >= EVERY and not self._is_pruning:
            self._written, self._is_pruning = 0, True
            if not start_daemon(self._prune_all, "flask-idempotence-pruning"):
                self._is_pruning = False

    def _prune_all(self) -> None:
        try:
            for _ in range(_BATCHES):
                if self.prune(BATCH) < BATCH:
                    return
                time.sleep(REST)
        except StoreError as error:
            _logger.info("Expired rows could not be removed: %s", error)
        finally:
            self._is_pruning = False


def _values(key: str, owner: bytes, fingerprint: bytes, **more: object) -> Values:
    return {"this_key": key, "this_owner": owner, "this_fingerprint": fingerprint, **more}


def _dialect_of(engine: Engine) -> Dialect:
    if not isinstance(engine, Engine) or engine.dialect.is_async:
        raise ConfigurationError(
            "SqlStore takes a sqlalchemy.Engine with a synchronous driver. (The sync_engine of an "
            "AsyncEngine cannot be used by other threads: make an engine with create_engine.)"
        )
    if engine.dialect.name not in _DIALECTS:
        raise ConfigurationError(
            f"The SQL store supports {', '.join(_DIALECTS)}, not {engine.dialect.name}."
        )
    dialect = _DIALECTS[engine.dialect.name]()
    dialect.check(engine)
    return dialect
