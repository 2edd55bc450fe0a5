"""Exactly once: the view's writes and the record of its response, committed together.

    the guard                      the session                     the store's table
    is anything written already?   read-only: rolled back
    claim                                                          claim, a commit of its own
    begin                          begins, READ COMMITTED
    (the view)                     writes
    settle                         flush
                                   complete, where the claim is still the owner's
                                   COMMIT                          record

A crash before the COMMIT leaves neither the writes nor the record, a crash after it leaves both.
A request that has lost its claim cannot complete it, and is rolled back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from ..errors import ConfigurationError, StoreError
from ..stores.base import Completion, Outcome
from .database import begin, checked_store, database_of, is_outage, store_errors, text_of, undo
from .writes import has_written, is_broken

if TYPE_CHECKING:
    from sqlalchemy.orm import SessionTransaction

    from ..stores.base import Store

_OPEN = "flask_idempotence_transaction"


class Transaction:
    """The transaction of one guarded view or block, committed when that is settled.

    Args:
        session: the session in which the view writes.
        store: the claim's, a table in the session's own database; None for no claim.

    Raises:
        ConfigurationError: they do not go together, or something is written already.
        StoreError: the database does not answer.
    """

    def __init__(self, session: Session, store: Store | None) -> None:
        self.session = session
        self._is_over = False
        self._is_view_over = False
        database = database_of(session)
        self._store = None if store is None else checked_store(store, database)
        if _OPEN in session.info:
            raise ConfigurationError(
                "Another guard commits this session already: guards with the same within= session "
                "cannot be nested."
            )
        with store_errors(session):
            if has_written(session):
                raise ConfigurationError(
                    "The session has writes from before its guard, which would be committed or "
                    "rolled back with the view: commit them first, or write in the view."
                )
            if session.in_transaction():
                # It has only read. A new one sees the state at the time of the claim, and its
                # connection is free for the claim meanwhile.
                session.rollback()
        if self._store is not None:
            self._store.know_place()

    def begin(self) -> None:
        """Begin, on a connection of the session's.

        Raises:
            ConfigurationError: the driver would commit every statement on its own.
            StoreError: the database does not answer.
        """
        with store_errors(self.session):
            self._connection = begin(self.session)
        self._root = self.session.get_transaction()
        self.session.info[_OPEN] = self

    def commit(self, completion: Completion | None) -> Outcome:
        """Commit the view's writes, and with them the completion of its claim.

        Args:
            completion: the record; None where nothing was claimed.

        Returns:
            STALE where the claim is no longer the owner's; everything is rolled back then.

        Raises:
            StoreError: the database does not answer. If `sent`, whether it has committed is
                unknown; else it has not.
            Exception: the view's writes cannot be committed, and are rolled back.
        """
        self._give_back()
        session = self.session
        try:
            with store_errors(session):
                self._check_whole()
                session.flush()
                if has_written(session, besides=self._connection):
                    raise ConfigurationError(_SEVERAL)
                if completion is not None and self._store is not None:
                    outcome = self._store.complete_in(session.connection(), *completion)
                    if outcome is Outcome.STALE:
                        session.rollback()
                        return outcome
        except BaseException:
            undo(session)
            raise
        return self._send_commit(completion)

    def _check_whole(self) -> None:
        if self.session.get_transaction() is not self._root:
            raise ConfigurationError(_NOT_YOURS.format(did="ended its transaction"))
        if self._connection.invalidated:
            raise StoreError("The connection broke while the view ran.", sent=False)
        if self.session.is_active and is_broken(self._connection):
            raise ConfigurationError(_BROKEN)

    def _send_commit(self, completion: Completion | None) -> Outcome:
        try:
            self.session.commit()
        except Exception as error:
            undo(self.session)
            if completion is not None and self._is_done(completion, error):
                return Outcome.OK
            if not is_outage(error):
                raise
            is_answered = isinstance(error, DBAPIError) and not error.connection_invalidated
            raise StoreError(text_of(error), sent=not is_answered) from error
        return Outcome.OK

    def _is_done(self, completion: Completion, error: Exception) -> bool:
        # The look-up waits, as far as its deadline goes, for the end of that transaction: it sees
        # the final state.
        if self._store is None:
            return False
        try:
            return self._store.look_up(completion.key, completion.owner) == "record"
        except StoreError:
            raise StoreError(text_of(error), sent=True) from error

    def view_returned(self) -> None:
        """Let the application roll back from now on; the guard's commit then fails."""
        self._is_view_over = True

    def roll_back(self) -> None:
        """Undo the view's writes, once: after that the session is the application's again."""
        was_over = self._is_over
        self._give_back()
        if not was_over:
            undo(self.session)

    def _give_back(self) -> None:
        self._is_over = True
        self.session.info.pop(_OPEN, None)

    def rolled_back(self) -> None:
        """Return the session to the application, which has rolled back on its own.

        Raises:
            ConfigurationError: its view is still running.
        """
        if not self._is_view_over:
            raise ConfigurationError(_NOT_YOURS.format(did="rolled it back"))
        self._give_back()


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
    "deadlock's error pass, and leave out statements such as CREATE TABLE, which commit."
)


@event.listens_for(Session, "before_commit")
def _refuse_commit(session: Session) -> None:
    if _OPEN in session.info and not session.in_nested_transaction():
        raise ConfigurationError(_NOT_YOURS.format(did="committed it"))


@event.listens_for(Session, "after_soft_rollback")
def _refuse_rollback(session: Session, ended: SessionTransaction) -> None:
    transaction: Transaction | None = session.info.get(_OPEN)
    if transaction is not None and ended.parent is None:
        transaction.rolled_back()
