"""Detection of writes in a session, before its transaction is ended or committed.

A session may have connections to several databases: SQLAlchemy's events report them as they join
its transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, event, func, select
from sqlalchemy.orm import Session

from . import mysql

if TYPE_CHECKING:
    from sqlalchemy.orm import SessionTransaction

_JOINED = "flask_idempotence_connections"

_INERROR = 3  # libpq's PQTRANS_INERROR, as psycopg and psycopg2 pass it on


def has_written(session: Session, *, besides: Connection | None = None) -> bool:
    """Whether anything is written or pending in a session; or written `besides` a connection.

    Raises:
        sqlalchemy.exc.DBAPIError: the database does not answer.
    """
    if besides is None and (session.new or session.dirty or session.deleted):
        return True
    joined: dict[Connection, int | None] = session.info.get(_JOINED, {})
    return any(_has_written(*each) for each in joined.items() if each[0] is not besides)


def is_broken(connection: Connection) -> bool:
    """Whether the transaction is undone already, and its COMMIT would not commit it.

    Call it once. PostgreSQL answers COMMIT by a rollback once it has refused a statement.
    """
    if connection.dialect.name in mysql.NAMES:
        return mysql.is_broken(connection)
    information = getattr(connection.connection.dbapi_connection, "info", None)
    return getattr(information, "transaction_status", None) == _INERROR


def _has_written(connection: Connection, changes: int | None) -> bool:
    if connection.invalidated:
        return False  # its writes are lost, with an error
    if connection.dialect.name == "postgresql":
        # A transaction gets its number when it first writes (PostgreSQL, "Transaction ID and
        # Snapshot Information Functions"; this is the one that version 12 has, too).
        return connection.scalar(select(func.txid_current_if_assigned())) is not None
    return changes is None or _changes_on(connection) != changes


def _changes_on(connection: Connection) -> int | None:
    # Other databases have no count: None counts as written.
    if connection.dialect.name in mysql.NAMES:
        return mysql.writes_on(connection)
    if connection.dialect.name != "sqlite":
        return None
    driver: Any = connection.connection.dbapi_connection
    count: int | None = getattr(driver, "total_changes", None)  # an async driver has none
    return count


@event.listens_for(Session, "after_begin")
def _note(session: Session, transaction: SessionTransaction, connection: Connection) -> None:
    if transaction.parent is None:  # a savepoint is a part of a transaction that has joined
        session.info.setdefault(_JOINED, {})[connection] = _changes_on(connection)


@event.listens_for(Session, "after_transaction_end")
def _forget(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        session.info.pop(_JOINED, None)
