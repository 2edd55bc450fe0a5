"""Exactly once: the view's writes and what is remembered of it, committed together.

    the guard                      the session                     the store's table
    is anything written already?   read-only: rolled back
    claim                                                          claim, a commit of its own
    begin                          begins, READ COMMITTED
    (the view)                     writes
    settle                         flush
                                   complete, where the claim is still the owner's
                                   COMMIT                          record

A crash before the COMMIT leaves neither the writes nor the record, a crash after it leaves both.
Whoever has lost the claim cannot complete it, and is rolled back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from ..errors import ConfigurationError, StoreError
from ..stores.base import Completion, Outcome
from .session import checked_store, engine_of
from .writes import has_written, has_written_besides, is_broken

if TYPE_CHECKING:
    from sqlalchemy.orm import SessionTransaction

    from ..stores.base import Store

_OPEN = "flask_idempotence_transaction"

_ISOLATION = "READ COMMITTED"
_ISOLATING_BEGIN = frozenset({"psycopg", "psycopg2"})
"""Drivers that send the isolation level with BEGIN. Others set it for the session, which behind a
pooler is other clients', too."""


class Transaction:
    """The transaction of one guarded view or block; it is committed when that is settled.

    Args:
        session: the session in which the view writes.
        store: where the claim is, a table in the session's own database; None for no claim.

    Raises:
        ConfigurationError: they do not go together, or something is written already.
        StoreError: the database does not answer.
    """

    def __init__(self, session: Session, store: Store | None) -> None:
        self.session = session
        self._is_over = False
        self.is_view_over = False
        self._root: SessionTransaction | None = None
        engine = engine_of(session)
        self._store = None if store is None else checked_store(store, engine)
        if _OPEN in session.info:
            raise ConfigurationError(
                "Another guard commits this session already: guards that stand within one "
                "session cannot stand around one another."
            )
        if self._has_written():
            raise ConfigurationError(
                "Something is written or pending in the session before its guard begins, which "
                "would be committed or rolled back with the view: commit it first, or leave it "
                "to the view."
            )
        if session.in_transaction():
            # It has only read. A new one sees what was there when the claim was granted, and
            # its connection is free for the claim meanwhile.
            with _as_store_error(sent=False):
                session.rollback()
        if self._store is not None:
            self._store.know_place()

    def _has_written(self) -> bool:
        try:
            with _as_store_error(sent=False):
                return has_written(self.session)
        except StoreError:
            self._undo()  # a session that lives on shall find the database when it is back
            raise

    def begin(self) -> None:
        """Begin, on a connection of the session's.

        Raises:
            ConfigurationError: the driver would commit every statement by itself.
            StoreError: the database does not answer.
        """
        with _as_store_error(sent=False):
            self.session.begin()
            options = self._options()
            connection = self.session.connection(execution_options=options)
            if connection.dialect.name == "sqlite":
                _begin_on_sqlite(connection)
            elif self._is_isolated() and not options:
                connection.exec_driver_sql(f"SET TRANSACTION ISOLATION LEVEL {_ISOLATION}")
        self._connection = connection
        self._root = self.session.get_transaction()
        self.session.info[_OPEN] = self
        for name, function in _LISTENERS.items():
            event.listen(self.session, name, function)

    def _is_isolated(self) -> bool:
        # The keeper changes the claim while the view runs. To REPEATABLE READ that would be
        # a conflict with the completion.
        bind = self.session.get_bind()
        return isinstance(bind, Engine) and bind.dialect.name == "postgresql"

    def _options(self) -> dict[str, Any]:
        if self._is_isolated() and self.session.get_bind().dialect.driver in _ISOLATING_BEGIN:
            return {"isolation_level": _ISOLATION}
        return {}

    def commit(self, completion: Completion | None) -> Outcome:
        """Commit what the view has written, and with it the completion of its claim.

        Args:
            completion: what is remembered; None where nothing was claimed.

        Returns:
            STALE where the claim is no longer the owner's; everything is rolled back then.

        Raises:
            StoreError: the database does not answer. If `sent`, whether it has committed is
                unknown; else it has not.
            Exception: what the view has written cannot be committed, and is rolled back.
        """
        self._end()
        session = self.session
        try:
            self._check_whole()
            with _as_store_error(sent=False):
                session.flush()
                if has_written_besides(session, self._connection):
                    raise ConfigurationError(_SEVERAL)
                if completion is not None and self._store is not None:
                    outcome = self._store.complete_in(session.connection(), *completion)
                    if outcome is Outcome.STALE:
                        session.rollback()
                        return outcome
        except BaseException:
            self._undo()
            raise
        return self._send_commit(completion)

    def _check_whole(self) -> None:
        if self.session.get_transaction() is not self._root:
            raise ConfigurationError(_NOT_YOURS.format(did="ended its transaction"))
        if self._connection.invalidated:
            raise StoreError("The connection has broken while the view ran.", sent=False)
        if self.session.is_active and is_broken(self._connection):
            raise ConfigurationError(_BROKEN)

    def _send_commit(self, completion: Completion | None) -> Outcome:
        try:
            self.session.commit()
        except Exception as error:
            self._undo()
            if completion is not None and self._is_done(completion, error):
                return Outcome.OK
            if _is_no_answer(error):
                is_answered = isinstance(error, DBAPIError) and not error.connection_invalidated
                raise StoreError(_text_of(error), sent=not is_answered) from error
            raise
        return Outcome.OK

    def _is_done(self, completion: Completion, error: Exception) -> bool:
        # Until that transaction has ended this waits, as far as the deadline goes: what it sees
        # is what was decided.
        if self._store is None:
            return False
        try:
            return self._store.look_up(completion.key, completion.owner) == "record"
        except StoreError:
            raise StoreError(_text_of(error), sent=True) from error

    def view_returned(self) -> None:
        """Let the application roll back from now on; the guard's commit then fails."""
        self.is_view_over = True

    def rolled_back(self) -> None:
        """Give the session back to the application, which has rolled back after the view."""
        self.session.info.pop(_OPEN, None)
        self._is_over = True

    def roll_back(self) -> None:
        """Undo the view's writes, once: after that the session is the application's again."""
        was_over = self._is_over
        self._end()
        if not was_over:
            self._undo()

    def _undo(self) -> None:
        with contextlib.suppress(SQLAlchemyError):
            self.session.rollback()

    def _end(self) -> None:
        self._is_over = True
        self.session.info.pop(_OPEN, None)
        for name, function in _LISTENERS.items():
            if event.contains(self.session, name, function):
                event.remove(self.session, name, function)


_NOT_YOURS = (
    "A view that stands within= a session must not have {did}: the guard commits when the view is "
    "done, and rolls back when its result failed. To undo a part of it, use "
    "session.begin_nested()."
)

_SEVERAL = (
    "A view that stands within= a session has written to another database than the store's, too: "
    "the two cannot be committed in one step."
)
_BROKEN = (
    "A view that stands within= a session went on after the database had refused one of its "
    "statements, which has undone everything: try in session.begin_nested() what may be refused."
)


def _begin_on_sqlite(connection: Connection) -> None:
    driver: Any = connection.connection.dbapi_connection
    if getattr(driver, "autocommit", None) is True:
        raise ConfigurationError(
            "The engine of the session of within= has connections with autocommit=True, which "
            "commit every statement by themselves."
        )
    if driver.isolation_level is None:
        _begin_driver(connection, None)
    else:
        # The driver begins before the first INSERT, UPDATE or DELETE, but not before a SAVEPOINT:
        # the end of one that stands alone would be a COMMIT.
        event.listen(connection, "savepoint", _begin_driver)


def _begin_driver(connection: Connection, savepoint: str | None) -> None:
    del savepoint
    driver: Any = connection.connection.dbapi_connection
    if not driver.in_transaction:
        driver.execute("BEGIN")


def _refuse_commit(session: Session) -> None:
    if _OPEN in session.info and not session.in_nested_transaction():
        raise ConfigurationError(_NOT_YOURS.format(did="committed it"))


def _refuse_rollback(session: Session, ended: SessionTransaction) -> None:
    transaction: Transaction | None = session.info.get(_OPEN)
    if transaction is None or ended.parent is not None:
        return
    if not transaction.is_view_over:
        raise ConfigurationError(_NOT_YOURS.format(did="rolled it back"))
    transaction.rolled_back()


_LISTENERS: dict[str, Callable[..., None]] = {
    "before_commit": _refuse_commit,
    "after_soft_rollback": _refuse_rollback,
}


@contextlib.contextmanager
def _as_store_error(*, sent: bool) -> Iterator[None]:
    try:
        yield
    except (DBAPIError, PoolTimeout) as error:
        if not _is_no_answer(error):
            raise
        raise StoreError(_text_of(error), sent=sent) from error


def _is_no_answer(error: Exception) -> bool:
    # Of the errors of a database, these are not about what was asked of it: it is away, or
    # locked, or has chosen this transaction to give way to another.
    return isinstance(error, OperationalError | PoolTimeout) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    )


def _text_of(error: Exception) -> str:
    # Without the statement and its parameters, which are the application's own.
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: the database did not commit"
