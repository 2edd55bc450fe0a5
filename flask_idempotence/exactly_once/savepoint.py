"""The savepoint at which a view's writes begin, in a session's transaction of any database.

It shows how the transaction ended below the session: a commit by the driver, by a text, or by a
statement of MySQL's ends the savepoint, too.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.sql.elements import (
    ReleaseSavepointClause,
    RollbackToSavepointClause,
    SavepointClause,
)

from ..stores.sql.mysql import error_number
from ..stores.sql.postgresql import state_of
from .database import first_word, may_write

_CLAUSES = (SavepointClause, ReleaseSavepointClause, RollbackToSavepointClause)

_LOCK_TIMEOUT, _DEADLOCK = 1205, 1213  # by these, InnoDB may undo a whole transaction, and does

_MISSING = 1305  # ER_SP_DOES_NOT_EXIST
_GONE = {"3B001", "25P01"}  # invalid_savepoint_specification, no_active_sql_transaction
_IDLE, _IN_ERROR = 0, 3  # libpq's PQtransactionStatus, as psycopg and psycopg2 pass it on

_BEGINNING = {"INSERT", "UPDATE", "DELETE", "REPLACE", "CREATE", "DROP", "ALTER", "SAVEPOINT"}


class Savepoint:
    """A savepoint of a session, which the view's transactions are nested in.

    A random name keeps a view from rolling back to it, and so from undoing its writes under a
    success: it goes before the names of all savepoints that SQLAlchemy sets in the meantime.

    On SQLite it is set before the first write: a transaction that has begun and read keeps its
    lock, or its snapshot, in which nothing can be written once the keeper has renewed the claim.

    Attributes:
        nested: the part of the session's transaction behind it.
        is_gone: whether the transaction was ended below the session.
        undone_by: the error by which InnoDB may have undone the transaction.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._connection = connection = session.connection()
        self._prefix = f"flask_idempotence_{secrets.token_hex(16)}_"
        self._name = ""
        self._is_pending = False
        self.undone_by: DBAPIError | None = None
        self.is_gone: bool = False
        event.listen(connection, "before_execute", self._rename, retval=True)
        if connection.dialect.name == "sqlite":
            self._changes = self._driver.total_changes
            event.listen(connection, "before_cursor_execute", self._defer, retval=True)
        _savepoints[connection] = self
        self.nested: SessionTransaction = session.begin_nested()
        session.connection()
        self._core: Any = connection.get_nested_transaction()
        self._root = connection.get_transaction()

    def is_refused(self) -> bool:
        """Whether PostgreSQL has refused a statement: it answers COMMIT by a rollback then."""
        return self._status() == _IN_ERROR

    def check(self) -> bool:
        """Return whether it is there as far as the driver knows, without asking the database."""
        self.is_gone |= self._connection.get_transaction() is not self._root
        if self._connection.dialect.name == "sqlite":
            # Statements that are the driver's own go past SQLAlchemy, and so may their commit.
            is_due = self._is_pending and self._driver.total_changes == self._changes
            self.is_gone |= not (is_due or self._driver.in_transaction)
        elif self.undone_by is None:
            self.is_gone |= self._status() == _IDLE
        return not self.is_gone

    def release(self) -> bool:
        """Leave the writes behind it to the session's transaction; return whether it was there."""
        while (inner := self._session.get_nested_transaction()) not in (None, self.nested):
            inner.commit()
        try:
            # Other sessions, such as SQLAlchemy-Continuum's, have savepoints that end first.
            while (core := self._connection.get_nested_transaction()) not in (None, self._core):
                core.commit()
            self._core.commit()
        except DBAPIError as error:
            self._judge(error)
            return False
        return True

    def roll_back(self) -> bool:
        """Undo the writes behind it, in the session as well; return whether they are undone."""
        try:
            if self._session.in_nested_transaction():
                self.nested.rollback()
            # A failed flush did so before; after a refusal PostgreSQL executes nothing else.
            self._connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {self._name}")
        except DBAPIError as error:
            self._judge(error)
        if self._is_pending and self._driver.in_transaction:
            self._driver.rollback()  # a statement of the driver's own has begun it
        return not self.is_gone

    def end(self) -> None:
        """Leave the session and its connection alone from now on."""
        try:
            if self.nested.is_active:
                # The event of `commit` would come before the writes are committed.
                self.nested.close()
        finally:
            _savepoints.pop(self._connection, None)
            event.remove(self._connection, "before_execute", self._rename)
            if self._connection.dialect.name == "sqlite":
                event.remove(self._connection, "before_cursor_execute", self._defer)

    def _judge(self, error: DBAPIError) -> None:
        """Set `is_gone` by the error of a missing savepoint; raise any other error."""
        cause = error.orig or error
        undone_by = self.undone_by
        by = None if undone_by is None else error_number(undone_by.orig or undone_by)
        if by == _LOCK_TIMEOUT:
            with closing(self._driver.cursor()) as cursor:
                cursor.execute("SELECT @@innodb_rollback_on_timeout")
                by = by if cursor.fetchone()[0] else None
        is_missing = error_number(cause) == _MISSING or "no such savepoint" in str(cause)
        if by is None and not is_missing and state_of(cause) not in _GONE:
            raise error
        self.is_gone = by is None

    @property
    def _driver(self) -> Any:
        return self._connection.connection.dbapi_connection

    def _status(self) -> int | None:
        return getattr(getattr(self._driver, "info", None), "transaction_status", None)

    def _rename(
        self, _connection: Connection, clause: object, *more: object
    ) -> tuple[object, ...]:
        if isinstance(clause, _CLAUSES):
            clause.ident = self._prefix + clause.ident
            self._name = self._name or clause.ident
        return clause, *more[:2]

    def _defer(
        self, _connection: object, _cursor: object, statement: str, parameters: object, *_: object
    ) -> tuple[str, object]:
        is_own = statement.endswith(self._name)
        if is_own and statement.startswith("SAVEPOINT"):
            self._is_pending = not self._driver.in_transaction
        if self._is_pending and is_own:
            return "-- deferred", parameters
        word = first_word(statement) if self._is_pending else None
        is_writing = word in _BEGINNING or (word == "WITH" and may_write(statement))
        if is_writing and not self._driver.in_transaction:
            self.is_gone |= self._driver.total_changes != self._changes
            self._is_pending = False
            self._driver.execute("BEGIN")
            self._driver.execute(f"SAVEPOINT {self._name}")
        return statement, parameters


_savepoints: WeakKeyDictionary[Connection, Savepoint] = WeakKeyDictionary()


@event.listens_for(Engine, "handle_error", retval=True)
def _replace_error(context: ExceptionContext) -> BaseException | None:
    """Remember an error by which InnoDB undoes a transaction, and its savepoints with it.

    SQLAlchemy then cannot roll back to them: the first error is raised, and not that one.
    """
    savepoint = None if context.connection is None else _savepoints.get(context.connection)
    number = error_number(context.original_exception)
    if savepoint is None or number not in (_LOCK_TIMEOUT, _DEADLOCK, _MISSING):
        return None
    if number == _MISSING:
        return savepoint.undone_by
    if isinstance(context.sqlalchemy_exception, DBAPIError):
        savepoint.undone_by = context.sqlalchemy_exception
    return None
