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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, event, func, select
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from .errors import ConfigurationError, StoreError
from .stores.base import Completion, Outcome
from .stores.sql import SqlStore

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.orm import SessionTransaction

    from .stores.base import Store

_OPEN = "flask_idempotence_transaction"
_CHANGES = "flask_idempotence_changes"


def source_of(guard: str, within: Any) -> Callable[[], Session]:
    """Return what gives the session of the moment.

    Args:
        guard: the name of what takes `within=`.
        within: a session, a `scoped_session`, or a function that returns a session.

    Raises:
        ConfigurationError: it is none of these.
    """
    if isinstance(within, Session):
        return lambda: within
    if isinstance(within, scoped_session) or (
        callable(within) and not isinstance(within, sessionmaker | type)
    ):
        return lambda: _checked(guard, within())
    raise ConfigurationError(_wrong(guard, within))


def _checked(guard: str, session: Any) -> Session:
    if isinstance(session, Session):
        return session
    raise ConfigurationError(_wrong(guard, session))


def _wrong(guard: str, thing: Any) -> str:
    return (
        f"{guard}(within=...) takes the session in which the view writes: Flask-SQLAlchemy's "
        "db.session, another scoped_session, a Session, or a function that returns the view's "
        f"own; not {type(thing).__name__}."
    )


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
        self._session = session
        self._root: SessionTransaction | None = None
        engine = _engine_of(session)
        self._store = None if store is None else _checked_store(store, engine)
        _watch_changes(engine)
        if _OPEN in session.info:
            raise ConfigurationError(
                "Another guard commits this session already: guards that stand within one "
                "session cannot stand around one another."
            )
        if _has_written(session):
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

    def begin(self) -> None:
        """Begin, on a connection of the session's.

        Raises:
            StoreError: the database does not answer.
        """
        with _as_store_error(sent=False):
            self._session.connection(execution_options=self._options())
        self._root = self._session.get_transaction()
        self._session.info[_OPEN] = self
        event.listen(self._session, "before_commit", _refuse_commit)
        event.listen(self._session, "after_soft_rollback", _refuse_rollback)

    def _options(self) -> dict[str, Any]:
        bind = self._session.get_bind()
        if isinstance(bind, Engine) and bind.dialect.name == "postgresql":
            # The keeper changes the claim while the view runs. To REPEATABLE READ that would be
            # a conflict with the completion.
            return {"isolation_level": "READ COMMITTED"}
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
        self._stop_watching()
        session = self._session
        if session.get_transaction() is not self._root:
            raise ConfigurationError(_NOT_YOURS.format(did="ended its transaction"))
        try:
            with _as_store_error(sent=False):
                session.flush()
                if completion is not None and self._store is not None:
                    outcome = self._store.complete_in(session.connection(), *completion)
                    if outcome is Outcome.STALE:
                        session.rollback()
                        return outcome
        except BaseException:
            self._undo()
            raise
        return self._send_commit(completion)

    def _send_commit(self, completion: Completion | None) -> Outcome:
        try:
            self._session.commit()
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

    def roll_back(self) -> None:
        """Undo what the view has written; a database that does not answer does so by itself."""
        self._stop_watching()
        self._undo()

    def _undo(self) -> None:
        with contextlib.suppress(SQLAlchemyError):
            self._session.rollback()

    def _stop_watching(self) -> None:
        if self._session.info.pop(_OPEN, None) is not None:
            event.remove(self._session, "before_commit", _refuse_commit)
            event.remove(self._session, "after_soft_rollback", _refuse_rollback)


_NOT_YOURS = (
    "A view that stands within= a session must not have {did}: the guard commits when the view is "
    "done, and rolls back when its result failed. To undo a part of it, use "
    "session.begin_nested()."
)


def _refuse_commit(session: Session) -> None:
    if not session.in_nested_transaction():
        raise ConfigurationError(_NOT_YOURS.format(did="committed it"))


def _refuse_rollback(session: Session, ended: SessionTransaction) -> None:
    del session
    if ended.parent is None:
        raise ConfigurationError(_NOT_YOURS.format(did="rolled it back"))


def _engine_of(session: Session) -> Engine:
    try:
        return session.get_bind().engine
    except SQLAlchemyError as error:
        raise ConfigurationError(f"The session of within= has no database: {error}") from None


def _checked_store(store: Store, engine: Engine) -> SqlStore:
    if not isinstance(store, SqlStore) or not _is_same(engine, store.engine):
        raise ConfigurationError(
            "within= needs the store in the session's own database: set IDEMPOTENCE_STORAGE_URI "
            "to the same URL, or pass store=SqlStore(engine) with the session's engine."
        )
    return store


def _is_same(one: Engine, other: Engine) -> bool:
    return one is other or one.pool is other.pool or _place(one.url) == _place(other.url)


def _place(url: URL) -> tuple[Any, ...]:
    database = url.database
    if url.get_backend_name() == "sqlite":
        return ("sqlite", str(Path(database or "").resolve()))
    return (url.get_backend_name(), url.host, url.port, database, url.query)


def _has_written(session: Session) -> bool:
    if session.new or session.dirty or session.deleted:
        return True
    if not session.in_transaction():
        return False
    with _as_store_error(sent=False):
        return _wrote_on(session.connection())


def _wrote_on(connection: Connection) -> bool:
    if connection.dialect.name == "postgresql":
        # A transaction gets its number when it first writes (PostgreSQL, "Transaction ID
        # Information Functions").
        return connection.scalar(select(func.pg_current_xact_id_if_assigned())) is not None
    driver: Any = connection.connection.dbapi_connection
    before = connection.info.get(_CHANGES)
    return bool(driver.in_transaction if before is None else driver.total_changes != before)


def _watch_changes(engine: Engine) -> None:
    if engine.dialect.name == "sqlite" and not event.contains(engine, "begin", _note_changes):
        event.listen(engine, "begin", _note_changes)


def _note_changes(connection: Connection) -> None:
    driver: Any = connection.connection.dbapi_connection
    connection.info[_CHANGES] = driver.total_changes


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
