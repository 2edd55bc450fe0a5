"""A connection that executes statements, and the base class of the databases: one file each."""

from __future__ import annotations

import enum
import os
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import groupby
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DataError, DBAPIError, ProgrammingError, SQLAlchemyError

from ...errors import IdempotenceError, StoreError, StoreNotReady
from ..base import (
    CLAIMED,
    ClaimOutcome,
    Crashed,
    Done,
    Entry,
    Outcome,
    Renewal,
    Running,
    TokenOutcome,
    milliseconds,
)
from ..facts import DatabaseFacts
from ..process import has_input
from . import statements
from .statements import CLAIM, NAME, RECORD, table

Values = Mapping[str, object]
Row = Sequence[Any]
Result = Any  # a driver's cursor, or SQLAlchemy's result: `rowcount` and `lastrowid`
Insert = Any  # each database has a class of its own
Info = MutableMapping[str, Any]

OK, STALE = Outcome.OK, Outcome.STALE

NO_CONTEXT = nullcontext()

# The server gives up at these shares of the deadline, so that its answer still says that nothing
# was written. MySQL's time-out for locks counts whole seconds.
LOCK_SHARE, STATEMENT_SHARE = 0.8, 0.9

_REMEDY = (
    f"The table {NAME} is missing, or does not fit this release: run "
    "'flask idempotence init-db', or your migration."
)

# Older versions will not do: SQLite 3.35 is the first with RETURNING.
OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0), "PostgreSQL": (12,), "SQLite": (3, 35)}

_RACES = 10  # the most attempts at a claim: at each, a conflicting row has appeared or vanished


def socket_of(driver: DBAPIConnection) -> int | None:
    """Return the file number of a driver's connection; None for a database without a server."""
    # psycopg, psycopg2 and mysqlclient show it; PyMySQL and pg8000 hide it.
    hidden = (getattr(driver, name, None) for name in ("_usock", "_sock"))
    for holder in (driver, *hidden):
        if (fileno := getattr(holder, "fileno", None)) is not None:
            return int(fileno())
    return None


class StoreConnection:
    """A connection of the store's own, which commits every statement on its own.

    Attributes:
        sqlalchemy: the connection of SQLAlchemy, which executes the statements.
        driver: that of the driver.
        info: it lasts as long as the driver's connection.
        file_number: a number of its own for the socket; None for a database without a server.
            The driver's could be another socket's as soon as the driver has closed it.
        deadline: of the current operation, by the monotonic clock.
        idle_since: when the last operation ended, by the same clock.
        release: closes `file_number`.
        has_input: tells whether an idle connection is readable: the server has closed it.
    """

    def __init__(self, connection: Connection) -> None:
        driver = connection.connection.dbapi_connection
        if driver is None:
            raise TypeError("The connection is closed.")
        self.sqlalchemy = connection
        self.driver = driver
        self.info = connection.info
        self.deadline = self.idle_since = 0.0
        number = socket_of(driver)
        self.file_number = None if number is None else os.dup(number)
        self.release: Callable[[], object] = bool
        self.has_input: Callable[[], object] = bool
        if self.file_number is not None:
            self.release = weakref.finalize(self, os.close, self.file_number)
            self.has_input = has_input(self.file_number)

    def first(self, statement: sa.Executable, values: Values) -> Row | None:
        return self.send(statement, values).first()

    def send(self, statement: sa.Executable, values: Values) -> sa.CursorResult[Any]:
        return self.sqlalchemy.execute(statement, values)

    @contextmanager
    def transaction(self, begin: str) -> Iterator[None]:
        """Begin a transaction by a text; commit it where the block ends without an error."""
        run = self.sqlalchemy.exec_driver_sql
        run(begin)
        try:
            yield
        except BaseException:
            with suppress(Exception):
                run("ROLLBACK")
            raise
        run("COMMIT")


class Trouble(enum.Enum):
    """The effect of an error on the statement that has failed."""

    UNKNOWN = enum.auto()  # it may have taken effect: the connection has broken
    REFUSED = enum.auto()  # it has taken no effect
    # It has taken no effect and may be sent again: a deadlock, a serialization failure.
    CONFLICT = enum.auto()
    NOT_READY = enum.auto()  # it has taken no effect: the table is missing, or is another one


def trouble_of(error: BaseException, dialect: Dialect) -> Trouble:
    if isinstance(error, IdempotenceError):
        return Trouble.REFUSED
    if not isinstance(error, DBAPIError) or error.connection_invalidated or error.orig is None:
        return Trouble.UNKNOWN  # no error of the database's: of the driver, or of its socket
    trouble = dialect.trouble(error.orig)
    if trouble is Trouble.UNKNOWN and isinstance(error, DataError | ProgrammingError):
        return Trouble.REFUSED  # the driver has refused it
    return trouble


def fail(error: BaseException, trouble: Trouble, *, sent: bool) -> NoReturn:
    """Raise the store's error for one of SQLAlchemy, of the driver or of its socket."""
    cause = getattr(error, "orig", None) or error
    # The lines below the first one may hold values, as SQLAlchemy's own errors do.
    text = f"{type(cause).__name__}: {str(cause).strip().partition(chr(10))[0]}"
    chained = None if isinstance(cause, SQLAlchemyError) else cause
    if trouble is Trouble.NOT_READY:
        raise StoreNotReady(f"{text}.", remedy=_REMEDY) from chained
    raise StoreError(text, sent=sent) from chained


class Dialect(ABC):
    """A database: its statements, its connections, its errors. One object a store.

    A database without RETURNING overrides `prune` and `discard`; one without ON CONFLICT,
    `_on_conflict`, `_returning` and `_has_written`.
    """

    # An `INSERT` has the row that it would have inserted under this name.
    _new_row = "excluded"

    _facts: sa.Executable  # selects facts by their names; `clock` in seconds since 1970
    _schema: sa.TextClause  # selects the schema of the table `name`

    def __init__(self, insert: Callable[[sa.Table], Insert]) -> None:
        self._insert = insert
        claim = self._upsert(statements.NEW_CLAIM, statements.MAY_CLAIM)
        complete = self._upsert(statements.COMPLETED, statements.MAY_COMPLETE)
        self._claim, self._complete = self._returning(claim), self._returning(complete)
        self.put_token = self._upsert(statements.NEW_TOKEN)
        self._renew = statements.RENEW.where(statements.TO_RENEW)

    def check(self, engine: sa.Engine) -> None:
        del engine

    @abstractmethod
    def prepare(self, connection: DBAPIConnection, seconds: float, info: Info) -> None:
        """Limit each statement of a driver's connection, which commits each, to these seconds."""

    def operation(
        self, connection: StoreConnection, *, writes: bool
    ) -> AbstractContextManager[None]:
        """Return the context of one operation: its transaction, or its lock if it `writes`."""
        del connection, writes
        return NO_CONTEXT

    @abstractmethod
    def trouble(self, error: BaseException) -> Trouble:
        """Return the effect of an error of the driver on its statement."""

    def facts(self, connection: StoreConnection) -> DatabaseFacts:
        sent_at = time.time()
        found = dict(connection.sqlalchemy.execute(self._facts).mappings().one())
        here = (sent_at + time.time()) / 2
        clock, version = found.pop("clock"), found.pop("version").partition("-")[0].split(".")
        return DatabaseFacts(
            version=tuple(int(number) for number in version[:3] if number.isdecimal()),
            oldest=OLDEST[found["product"]],
            survives_crash=bool(found.pop("survives_crash")),
            missing=self._missing_parts(connection.sqlalchemy),
            clock_ahead=None if clock is None else float(clock) - here,
            **found,
        )

    def _missing_parts(self, connection: Connection) -> tuple[str, ...]:
        """Return the name of the table, or of its columns, where they are missing."""
        inspector = sa.inspect(connection)
        if not inspector.has_table(NAME):
            return (NAME,)
        present = {column["name"] for column in inspector.get_columns(NAME)}
        return tuple(column.name for column in table.columns if column.name not in present)

    def _upsert(
        self,
        row: statements.Columns,
        where: sa.ColumnElement[bool] | None = None,
        insert: Insert = None,
    ) -> sa.Insert:
        """Return a statement that inserts a row, or replaces one that meets a condition."""
        if insert is None:
            insert = self._insert(table).values(row)
        new = getattr(insert, self._new_row)  # shorter to plan than the same values once more
        replaced = {name: new[name] for name in row if name != "key"}
        if row is statements.NEW_CLAIM:
            # A claim that was sent twice may arrive after the keeper has raised its lease, which
            # must not end earlier by that. Every other row that gives way has expired.
            old_ends, new_ends = table.c.lease_ends, new.lease_ends
            ends = sa.case((old_ends > new_ends, old_ends), else_=new_ends)
            replaced |= {"lease_ends": ends, "expires": ends + statements.LIFE}
        return self._on_conflict(insert, replaced, where)

    def _on_conflict(
        self, insert: Insert, replaced: statements.Columns, where: sa.ColumnElement[bool] | None
    ) -> sa.Insert:
        """Return an insert that replaces values of a row in its way, under a condition."""
        upsert: sa.Insert = insert.on_conflict_do_update(
            index_elements=[table.c.key], set_=replaced, where=where
        )
        return upsert

    def _returning(self, upsert: sa.Insert) -> sa.Executable:
        """Return an upsert whose result says whether it has written, for `_has_written`."""
        return upsert.returning(table.c.key)

    def _has_written(self, upsert: Result) -> bool:
        """Return whether a row in the way of an upsert has met its condition."""
        return bool(upsert.all())  # SQLAlchemy does not know how many rows an insert has changed

    def claim(self, connection: StoreConnection, values: Values) -> ClaimOutcome:
        """Take a key for its first caller, or return its holder; outside a transaction."""
        for _ in range(_RACES):
            if (outcome := self._claim_once(connection, values)) is not None:
                return outcome
        raise StoreError("The key changed owners too often.", sent=False)

    def _claim_once(self, connection: StoreConnection, values: Values) -> ClaimOutcome | None:
        """Take a key, or return its holder; None where that has changed in between."""
        # Read first: repeats neither lock the row in their way, nor wait for one that has.
        row = connection.first(statements.IN_THE_WAY, values)
        if row is not None:
            return outcome_of(row, values)
        with self.operation(connection, writes=True):
            return CLAIMED if self._has_written(connection.send(self._claim, values)) else None

    def renew(self, connection: StoreConnection, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Restart the leases of live claims, those of one length in one statement."""
        # A statement takes any of several rows that match: only the last one of each is sent.
        last = {(key, owner): milliseconds(lease) for key, owner, lease in renewals}
        # All batches have one order, so that no two wait for each other.
        claims = sorted(last, key=lambda claim: (last[claim], claim))
        renewed: set[tuple[str, bytes]] = set()
        execute = connection.sqlalchemy.execute
        for lease, group in groupby(claims, key=last.__getitem__):
            for some in statements.in_parts(list(group)):
                values = {"keys": [key for key, _ in some], "claims": some, "lease": lease}
                if execute(self._renew, values).rowcount == len(some):
                    renewed.update(some)
                else:
                    live = execute(statements.RENEWABLE, values)
                    renewed |= {(key, bytes(owner)) for key, owner in live}.intersection(some)
        return [OK if (key, owner) in renewed else STALE for key, owner, _ in renewals]

    def complete(self, connection: StoreConnection, values: Values) -> Outcome:
        return OK if self._has_written(connection.send(self._complete, values)) else STALE

    def complete_in(self, connection: Connection, schema: str | None, values: Values) -> Outcome:
        """Complete a claim within a transaction of the application's."""
        # It names the table of the claim, also where the application's schemas have another.
        options = {"schema_translate_map": None if schema is None else {None: schema}}
        result = connection.execute(self._complete, values, execution_options=options)
        return OK if self._has_written(result) else STALE

    def schema(self, connection: StoreConnection) -> str | None:
        """Return the schema of the store's table; None where there is no table."""
        row = connection.first(self._schema, {"name": NAME})
        return None if row is None else row[0]

    def release(self, connection: StoreConnection, values: Values) -> Outcome:
        if connection.send(statements.RELEASE, values).rowcount:
            return OK
        return STALE if connection.first(statements.EXISTS, values) else OK

    def take_token(self, connection: StoreConnection, values: Values) -> TokenOutcome:
        if connection.send(statements.TAKE, values).rowcount:
            return TokenOutcome.TAKEN
        if connection.first(statements.IS_TOKEN, values):
            return TokenOutcome.NOT_YOURS
        return TokenOutcome.ABSENT

    def prune(self, connection: StoreConnection, most: int) -> int:
        return len(connection.sqlalchemy.execute(statements.PRUNE, {"most": most}).all())

    def discard(
        self, connection: StoreConnection, seen: Sequence[tuple[str, Entry]]
    ) -> list[Outcome]:
        removed: set[str] = set()
        for some in statements.in_parts(seen):
            rows = [(key, *kind_and_owner(entry)) for key, entry in some]
            values = {"keys": [key for key, _ in some], "seen": rows}
            removed.update(connection.sqlalchemy.execute(statements.DISCARD, values).scalars())
        return [OK if key in removed else STALE for key, _ in seen]


def kind_and_owner(entry: Entry) -> tuple[str, bytes]:
    kind, _, owner = entry.mark.partition(b"\0")
    return kind.decode(), owner


def outcome_of(row: Row, values: Values) -> ClaimOutcome:
    """Return the outcome of a claim that conflicts with a row, as `IN_THE_WAY` selects it."""
    kind, fingerprint, left, data, owner = row
    matches = bytes(fingerprint) == values["this_fingerprint"]
    if kind == RECORD:
        return Done(matches, bytes(data), left / 1000)
    if kind != CLAIM:
        return Done(True, b"")  # a token, or no row of the store's: done, with an empty record
    return Running(matches, left / 1000, bytes(owner)) if left > 0 else Crashed(matches)
