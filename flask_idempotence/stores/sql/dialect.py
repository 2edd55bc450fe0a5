"""Base class of the databases: one subclass each, in a file of its own."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DataError, DBAPIError, ProgrammingError

from ...errors import IdempotenceError, StoreError
from ..base import (
    ClaimOutcome,
    Completion,
    Crashed,
    Done,
    Entry,
    Outcome,
    Renewal,
    Running,
    TokenOutcome,
)
from ..facts import DatabaseFacts
from . import statements
from .connection import DatabaseConnection, Row, Statement, StoreConnection, Values
from .table import CLAIM, RECORD, TOKEN, milliseconds, table

Insert = Any  # each database has a class of its own
Info = MutableMapping[str, object]

_row = table.c

OK, STALE = Outcome.OK, Outcome.STALE

NO_CONTEXT = nullcontext()

_RACES = 10
"""The most attempts at a claim: at each, a conflicting row has appeared or vanished."""


class Trouble(enum.Enum):
    """The effect of an error on the statement that has failed."""

    UNKNOWN = enum.auto()
    """It may have taken effect: the connection has broken."""
    REFUSED = enum.auto()
    """It has taken no effect."""
    CONFLICT = enum.auto()
    """It has taken no effect and may be sent again: a deadlock, a serialization failure."""
    NOT_READY = enum.auto()
    """It has taken no effect: the table is missing, or is another one."""


def trouble_of(error: BaseException, dialect: Dialect) -> Trouble:
    """Return the effect of an error on the statement that has failed."""
    if isinstance(error, IdempotenceError):
        return Trouble.REFUSED
    if not isinstance(error, DBAPIError) or error.connection_invalidated or error.orig is None:
        return Trouble.UNKNOWN  # no error of the database's: of the driver, or of its socket
    trouble = dialect.trouble(error.orig)
    if trouble is Trouble.UNKNOWN and isinstance(error, DataError | ProgrammingError):
        return Trouble.REFUSED  # by the driver already
    return trouble


class Dialect(ABC):
    """A database: its statements, its connections, its errors. One object a store.

    A database without RETURNING overrides `complete`, `_take`, `prune` and `discard`; one without
    ON CONFLICT, `_on_conflict`.

    Args:
        insert: makes an `INSERT` of the database's own.
    """

    _new_row = "excluded"
    """The attribute of an `INSERT` that stands for the row it would have inserted."""

    def __init__(self, insert: Callable[[sa.Table], Insert]) -> None:
        self._insert = insert
        complete = self._upsert(statements.COMPLETED, statements.MAY_COMPLETE)
        self._complete = Statement(complete.returning(table.c.key))
        self._put_token = Statement(self._upsert(statements.NEW_TOKEN))
        self._look_up = Statement(statements.LOOK_UP)
        self._release = Statement(statements.RELEASE)
        self._exists = Statement(statements.EXISTS)
        self._take_any = Statement(statements.TAKE)
        self._is_token = Statement(statements.IS_TOKEN)

    def check(self, engine: sa.Engine) -> None:
        del engine

    @abstractmethod
    def prepare(self, connection: DBAPIConnection, seconds: float, info: Info) -> None:
        """Set up a new connection of the driver, so that no statement takes longer than this.

        It commits each statement on its own already.
        `info` is that of SQLAlchemy's connections over it.
        """

    def operation(
        self, connection: StoreConnection, *, writes: bool
    ) -> AbstractContextManager[None]:
        """Return the context of one operation: its transaction, or its lock if it `writes`."""
        del connection, writes
        return NO_CONTEXT

    def file_number(self, connection: DBAPIConnection) -> int | None:
        """Return the socket of a driver's connection; None for a database without a server."""
        del connection
        return None

    @abstractmethod
    def trouble(self, error: BaseException) -> Trouble:
        """Return the effect of an error of the driver on its statement."""

    @abstractmethod
    def facts(self, connection: Connection) -> DatabaseFacts:
        """Return the database's version, settings and state."""

    @abstractmethod
    def count_all(self, connection: Connection) -> int | None:
        """Return roughly how many rows there are, None for unknown."""

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
            old_ends, new_ends = _row.lease_ends, new.lease_ends
            ends = sa.case((old_ends > new_ends, old_ends), else_=new_ends)
            replaced |= {"lease_ends": ends, "expires": ends + statements.KEEP}
        return self._on_conflict(insert, replaced, where)

    def _on_conflict(
        self, insert: Insert, replaced: statements.Columns, where: sa.ColumnElement[bool] | None
    ) -> sa.Insert:
        """Return an insert that replaces values of a row in its way, under a condition."""
        upsert: sa.Insert = insert.on_conflict_do_update(
            index_elements=[table.c.key], set_=replaced, where=where
        )
        return upsert

    def claim(self, connection: StoreConnection, values: Values) -> ClaimOutcome:
        """Take a key for its first caller, or return its holder; outside a transaction."""
        for _ in range(_RACES):
            if (outcome := self._claim_once(connection, values)) is not None:
                return outcome
        raise StoreError("The key changed owners too often.", sent=False)

    @abstractmethod
    def _claim_once(self, connection: StoreConnection, values: Values) -> ClaimOutcome | None:
        """Take a key, or return its holder; None where that has changed in between."""

    @abstractmethod
    def renew(self, connection: StoreConnection, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Restart the leases of live claims."""

    def complete(self, connection: DatabaseConnection, completion: Completion) -> Outcome:
        """Replace a claim by a record, if it is the owner's.

        The connection may be the application's, and in a transaction.
        """
        return OK if connection.first(self._complete, values_of(completion)) else STALE

    @abstractmethod
    def schema(self, connection: StoreConnection) -> str | None:
        """Return the schema of the store's table; None where there is no table."""

    def look_up(self, connection: StoreConnection, key: str, owner: bytes) -> str | None:
        """Return the kind of an owner's row at a key: `"claim"`, `"record"`, or None."""
        row = connection.first(self._look_up, {"this_key": key, "this_owner": owner})
        return None if row is None or row[0] not in (CLAIM, RECORD) else str(row[0])

    def release(self, connection: StoreConnection, key: str, owner: bytes) -> Outcome:
        values = {"this_key": key, "this_owner": owner}
        if connection.change(self._release, values).rows:
            return OK
        return STALE if connection.first(self._exists, {"this_key": key}) else OK

    def put_token(self, connection: StoreConnection, values: Values) -> None:
        connection.change(self._put_token, values)

    def take_token(self, connection: StoreConnection, key: str, subject: bytes) -> TokenOutcome:
        kind = self._take(connection, {"this_key": key, "this_owner": subject})
        if kind is not None:
            return TokenOutcome.TAKEN if kind == TOKEN else TokenOutcome.TAKEN_AGAIN
        if connection.first(self._is_token, {"this_key": key}):
            return TokenOutcome.NOT_YOURS
        return TokenOutcome.ABSENT

    def _take(self, connection: StoreConnection, values: Values) -> str | None:
        """Remove a token, if it is the subject's or bound to none, and return its kind."""
        row = connection.first(self._take_any, values)
        return None if row is None else str(row[0])

    def prune(self, connection: StoreConnection, most: int) -> int:
        return statements.prune(connection.sqlalchemy, most)

    def discard(
        self, connection: StoreConnection, seen: Sequence[tuple[str, Entry]]
    ) -> list[Outcome]:
        return statements.discard(connection.sqlalchemy, seen)


def values_of(completion: Completion) -> Values:
    return {
        "this_key": completion.key,
        "this_owner": completion.owner,
        "this_fingerprint": completion.fingerprint,
        "record": completion.record,
        "keep": milliseconds(completion.keep),
    }


def outcome_of(row: Row, values: Values) -> ClaimOutcome:
    """Return the outcome of a claim that conflicts with a row, as `IN_THE_WAY` selects it."""
    kind, fingerprint, left, data = row
    matches = bytes(fingerprint) == values["this_fingerprint"]
    if kind == RECORD:
        return Done(matches, bytes(data))
    if kind != CLAIM:
        return Done(True, b"")  # a token, or no row of the store's: done, with an empty record
    return Running(matches, left / 1000) if left > 0 else Crashed(matches)
