"""The database behind a session: its store, the begin of a transaction, its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ..errors import ConfigurationError, StoreError
from ..stores.sql import SqlStore, mysql_errors
from ..stores.sql.mysql_errors import error_number
from . import mysql

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from ..stores.base import Store

_ISOLATION = "READ COMMITTED"
_ISOLATING_BEGIN = frozenset({"psycopg", "psycopg2"})
"""Drivers that send the isolation level with BEGIN. Others set it for the connection, which behind
a pooler is shared with other clients."""


def database_of(session: Session) -> Engine:
    """Return the engine of a session's default bind.

    Raises:
        ConfigurationError: it has none.
    """
    try:
        return session.get_bind().engine
    except SQLAlchemyError as error:
        raise ConfigurationError(f"The session of within= has no database: {error}") from None


def checked_store(store: Store, database: Engine) -> SqlStore:
    """Return a store that is a table in this database.

    Raises:
        ConfigurationError: it is none.
    """
    if not isinstance(store, SqlStore) or not _is_same(database, store.engine):
        raise ConfigurationError(
            "within= needs the store in the session's own database: set IDEMPOTENCE_STORAGE_URI "
            "to the same URL, or pass store=SqlStore(engine) with the session's engine."
        )
    return store


def _is_same(one: Engine, other: Engine) -> bool:
    return one is other or one.pool is other.pool or _place(one.url) == _place(other.url)


def _place(url: URL) -> tuple[object, ...]:
    database = url.database
    if url.get_backend_name() == "sqlite":
        return ("sqlite", str(Path(database or "").resolve()))
    if url.get_backend_name() in mysql.NAMES:
        # Flask-SQLAlchemy adds a charset, which changes nothing here.
        return ("mysql", url.host, url.port, database, url.query.get("unix_socket"))
    return (url.get_backend_name(), url.host, url.port, database, url.query)


def begin(session: Session) -> Connection:
    """Begin a session's transaction, and return its connection.

    On PostgreSQL and MySQL it is READ COMMITTED: the keeper changes the claim while the view runs,
    a conflict with the completion in REPEATABLE READ.
    """
    session.begin()
    bind = session.get_bind()
    if bind.dialect.name in mysql.NAMES:
        return mysql.begin(session)
    is_isolated = isinstance(bind, Engine) and bind.dialect.name == "postgresql"
    if is_isolated and bind.dialect.driver in _ISOLATING_BEGIN:
        return session.connection(execution_options={"isolation_level": _ISOLATION})
    connection = session.connection()
    if is_isolated:
        connection.exec_driver_sql(f"SET TRANSACTION ISOLATION LEVEL {_ISOLATION}")
    elif connection.dialect.name == "sqlite":
        _begin_on_sqlite(connection)
    return connection


def _begin_on_sqlite(connection: Connection) -> None:
    driver: Any = connection.connection.dbapi_connection
    if getattr(driver, "autocommit", None) is True:
        raise ConfigurationError(
            "The engine of the session of within= connects with autocommit=True, which commits "
            "every statement on its own: leave that option out."
        )
    if driver.isolation_level is None:
        _begin_driver(connection)
    else:
        # The driver begins before the first INSERT, UPDATE or DELETE, but not before a SAVEPOINT:
        # outside a transaction, its end would be a COMMIT.
        event.listen(connection, "savepoint", _begin_driver)


def _begin_driver(connection: Connection, _name: str | None = None) -> None:
    driver: Any = connection.connection.dbapi_connection
    if not driver.in_transaction:
        driver.execute("BEGIN")


@contextmanager
def store_errors(session: Session) -> Iterator[None]:
    """Raise a `StoreError` in place of an error that is an outage; nothing was committed.

    The session is rolled back then, so that it finds the database when it is back.
    """
    try:
        yield
    except (DBAPIError, PoolTimeout) as error:
        if not is_outage(error):
            raise
        undo(session)
        raise StoreError(text_of(error), sent=False) from error


def undo(session: Session) -> None:
    """Roll a session back, as far as the database answers."""
    with suppress(SQLAlchemyError):
        session.rollback()


def is_outage(error: Exception) -> bool:
    """Whether the cause is not the statement: connection lost, lock time-out, deadlock victim."""
    number = error_number(error.orig) if isinstance(error, DBAPIError) and error.orig else None
    if number is not None:  # of MySQL, where OperationalError is the class of all other errors
        return mysql_errors.is_outage(number)
    return isinstance(error, OperationalError | PoolTimeout) or (
        isinstance(error, DBAPIError) and error.connection_invalidated
    )


def text_of(error: Exception) -> str:
    """Describe an error without its statement and parameters, which are the application's own."""
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: the database did not commit"
