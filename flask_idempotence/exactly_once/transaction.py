"""Exactly once: the view's writes and the record of its response, committed together.

    the guard                      the session                     the store's table
    is anything written already?   continues, or begins
    claim                                                          claim, a commit of its own
    begin                          SAVEPOINT
    (the view)                     writes
    settle                         flush
                                   complete, where the claim is still the owner's
                                   RELEASE, which finds the savepoint or refuses
                                   COMMIT                          record

A crash before the COMMIT leaves neither the writes nor the record, a crash after it leaves both.
A request that has lost its claim cannot complete it, and is rolled back to the savepoint.
"""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session, SessionTransaction

from ..errors import COMMITTED_BELOW, ConfigurationError, StoreError
from ..stores.base import Completion, Outcome, Store
from . import database
from .savepoint import Savepoint

_OPEN = "flask_idempotence_transaction"
# By these keys a session's `info` has its transaction during the view, and during the commit.
_COMMITTING = "flask_idempotence_commit"

_MOST_FLUSHES = 100  # SQLAlchemy has the same limit


class Transaction:
    """The transaction of one guarded view or block, committed when that is settled.

    Attributes:
        is_view_over: whether the application may roll back: the guard's commit then fails.
        is_committed_below: whether it was committed below the session.
        is_committed: whether the database has committed it: a later error is a listener's.
        error: the kind of the error that the view, or the commit, has raised.
        late_error: the error of a listener of the application after the commit.
    """

    def __init__(self, session: Session, store: Store | None) -> None:
        self.session = session
        self.is_view_over: bool = False
        self.is_committed_below: bool = False
        self.is_committed: bool = False
        self.error: type[Exception] = Exception
        self.late_error: Exception | None = None
        self.savepoint: Savepoint | None = None
        self._is_over = self._goes_on = False
        self._store = database.checked_store(store, session)
        if _OPEN in session.info:
            raise ConfigurationError(
                "Another guard commits this session already: guards with the same within= session "
                "cannot be nested, and no decorator outside a guard can call its view again once "
                "it has returned. Let the view raise an exception where it is to be called again."
            )
        with database.store_errors(session):
            if database.has_written(session):
                raise ConfigurationError(
                    "The session has writes or row locks (SELECT ... FOR UPDATE) from before its "
                    "guard, which would end with the view: commit them first, or write and lock "
                    "in the view."
                )
            while (nested := session.get_nested_transaction()) is not None:
                nested.commit()  # it has only read
            joined = database.joined_connection(session)
            if joined is not None and joined.invalidated:  # and a new one may be another tenant's
                database.undo(session)
                raise StoreError("The connection broke before the view.", sent=False)
            if joined is not None and joined.dialect.name == "sqlite":
                # A transaction that has read keeps writers off, and so the claim.
                database.join(joined)
        self._joined = joined
        if self._store is not None:
            self._store.know_schema()

    def begin(self) -> None:
        session = self.session
        self._was_open = session.in_transaction()
        with database.store_errors(session):
            if not self._was_open:
                session.begin()
            if self._joined is None:
                self._connection = database.begin(session)
            else:
                self._connection = self._joined
                if self._connection.dialect.name != "sqlite":
                    self._goes_on = database.join(self._connection)
                session.expire_all()  # the view sees what there is at the time of the claim
            self._root = session.get_transaction()
            self.savepoint = Savepoint(session)
        session.info[_OPEN] = self

    def commit(self, completion: Completion | None) -> Outcome:
        """Commit the view's writes, and with them the completion of its claim, if there is one.

        All is rolled back where the claim is no longer the owner's (STALE), and at an error;
        after a `StoreError` that says `sent`, whether it was committed is unknown.
        """
        self.give_back()
        session = self.session
        try:
            with database.store_errors():
                savepoint = self._whole()
                session.flush()
                if completion is not None and self._store is not None:
                    outcome = self._store.complete_in(session.connection(), *completion)
                    if outcome is Outcome.STALE:
                        self._undo()
                        return outcome
                if not savepoint.release():
                    raise ConfigurationError(COMMITTED_BELOW if savepoint.is_gone else _BROKEN)
                savepoint.end()
        except BaseException:
            self._undo()
            raise
        self._send_commit(completion)
        return Outcome.OK

    def _whole(self) -> Savepoint:
        savepoint = self.savepoint
        if savepoint is None or self.session.get_transaction() is not self._root:
            raise ConfigurationError(_NOT_YOURS.format(did="ended its transaction"))
        if self._connection.invalidated:
            raise StoreError("The connection broke while the view ran.", sent=False)
        if self.session.is_active and savepoint.is_refused():
            raise ConfigurationError(_BROKEN)
        if not savepoint.check():
            raise ConfigurationError(COMMITTED_BELOW)
        return savepoint

    def _send_commit(self, completion: Completion | None) -> None:
        session = self.session
        session.info[_COMMITTING] = self
        # It runs after the application's own.
        event.listen(session, "before_commit", self._check_alone)
        try:
            session.commit()
        except Exception as error:
            database.undo(session)
            if self.is_committed or self._is_done(completion, error):
                if self.is_committed or not database.is_outage(error):
                    self.late_error = error
                return
            if not database.is_outage(error):
                raise
            is_answered = isinstance(error, DBAPIError) and not error.connection_invalidated
            raise StoreError(database.text_of(error), sent=not is_answered) from error
        finally:
            event.remove(session, "before_commit", self._check_alone)
            session.info.pop(_COMMITTING, None)

    def _check_alone(self, session: Session) -> None:
        """Refuse a commit in two databases, once the application's listeners have written."""
        for _ in range(_MOST_FLUSHES):
            if not (session.new or session.dirty or session.deleted):
                break
            session.flush()
        if database.has_written(session, besides=self._connection):
            raise ConfigurationError(_SEVERAL)

    def _is_done(self, completion: Completion | None, error: Exception) -> bool:
        if self._store is None or completion is None:
            return False
        # It waits, as far as its deadline goes, for the end of that transaction, and sees the
        # final state.
        try:
            return self._store.look_up(completion.key, completion.owner) == "record"
        except StoreError:
            raise StoreError(database.text_of(error), sent=True) from error

    @property
    def is_constrained(self) -> bool:
        """Whether a constraint, such as a unique index, has refused it."""
        return issubclass(self.error, IntegrityError)

    def roll_back(self) -> None:
        """Undo the view's writes, once: after that the session is the application's again."""
        was_over = self._is_over
        self.give_back()
        if not was_over:
            self._undo()

    def _undo(self) -> None:
        """Leave the transaction as the guard has found it, as far as it is still there."""
        savepoint, is_there = self.savepoint, False
        if savepoint is not None:
            with suppress(Exception):
                if self.session.get_transaction() is self._root:
                    is_there = savepoint.check() and savepoint.roll_back() and self._was_open
            self.is_committed_below = savepoint.is_gone
            with suppress(Exception):
                savepoint.end()
                if is_there:
                    if not self._goes_on:
                        database.restart(self._connection)
                    database.forget_writes(self.session, self._connection)
                    return
        database.undo(self.session)

    def give_back(self) -> None:
        self._is_over = True
        self.session.info.pop(_OPEN, None)


_NOT_YOURS = (
    "A view with within= must not have {did}: the guard commits after the view, and rolls back if "
    "the result failed. To undo a part, use session.begin_nested()."
)
_SEVERAL = (
    "A view with within= has also written to another database than the store's: the two cannot be "
    "committed in one step. Write to the second one outside the guarded view."
)
_BROKEN = (
    "A view with within= continued after the database had refused a statement, which rolled back "
    "everything: run a statement that may be refused in session.begin_nested(). On MySQL, let a "
    "deadlock's error pass."
)


@event.listens_for(Session, "before_commit")
def _refuse_commit(session: Session) -> None:
    transaction: Transaction | None = session.info.get(_OPEN)
    if transaction is None:
        return
    nested = session.get_nested_transaction()
    # The view may commit savepoints of its own.
    if nested is None or (transaction.savepoint and nested is transaction.savepoint.nested):
        raise ConfigurationError(_NOT_YOURS.format(did="committed it"))


@event.listens_for(Session, "after_commit", insert=True)  # it runs before those that may raise
def _mark_committed(session: Session) -> None:
    committing: Transaction | None = session.info.get(_COMMITTING)
    if committing is not None and not session.in_nested_transaction():
        committing.is_committed = True


@event.listens_for(Session, "after_soft_rollback")
def _refuse_rollback(session: Session, ended: SessionTransaction) -> None:
    transaction: Transaction | None = session.info.get(_OPEN)
    if transaction is None or ended.parent is not None:
        return
    if not transaction.is_view_over:
        raise ConfigurationError(_NOT_YOURS.format(did="rolled it back"))
    transaction.give_back()
