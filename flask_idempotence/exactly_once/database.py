"""The database behind a session: its store, the begin of a transaction, its errors."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import (
    DBAPIError,
    DisconnectionError,
    InvalidRequestError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, QueuePool

from ..errors import NEEDS_DATABASE, ConfigurationError, StoreError
from ..stores.base import Store
from ..stores.sql import SqlStore, mysql
from ..stores.sql.statements import MYSQL
from .writes import LEVEL, commits_by_itself, has_written, joined_connection

_logger = logging.getLogger("flask_idempotence")

_ISOLATION = "READ COMMITTED"
# Drivers that send the isolation level with BEGIN. Others set it for the connection, which behind
# a pooler is shared with other clients.
_ISOLATING_BEGIN = frozenset({"psycopg", "psycopg2"})


_IN_TRANSACTION = 1568  # ER_CANT_CHANGE_TX_CHARACTERISTICS

_PROCESS = "flask_idempotence process"  # a pool's connection knows its process by this key

_first_process = os.getpid()
# They are never freed: that may end a connection for the process that has made it.
_inherited: list[DBAPIConnection] = []


@event.listens_for(QueuePool, "connect")
def _sign(_: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
    entry.info[_PROCESS] = os.getpid()


@event.listens_for(QueuePool, "checkout")
def _leave_inherited(
    connection: DBAPIConnection, entry: ConnectionPoolEntry, proxy: PoolProxiedConnection
) -> None:
    """Connect again in a child process, as gunicorn's with `--preload`.

    Two processes on one connection write into one transaction: one would commit what the other,
    killed meanwhile, has written. The way is SQLAlchemy's ("Using Connection Pools with
    Multiprocessing or os.fork()").
    """
    if entry.info.get(_PROCESS, _first_process) != os.getpid():
        _inherited.append(connection)
        # Typed as read-only, and set so by SQLAlchemy's documentation.
        entry.dbapi_connection = proxy.dbapi_connection = None  # type: ignore[misc]
        raise DisconnectionError("The connection was made in another process.")


def checked_store(store: Store | None, session: Session) -> SqlStore | None:
    """Return a claim's store, which must be a table in the session's own database."""
    try:
        theirs = session.get_bind().engine
    except SQLAlchemyError as error:
        raise ConfigurationError(f"The session of within= has no database: {error}") from None
    if store is None:
        return None
    if isinstance(store, SqlStore):
        ours = store.engine
        if ours.pool is theirs.pool or _place(ours.url) == _place(theirs.url):
            return store
        if theirs.url.get_backend_name() == ours.url.get_backend_name() == "sqlite":
            files = (str(Path(each.url.database or "").resolve()) for each in (theirs, ours))
            raise ConfigurationError(
                "within= needs the store in the session's own database. The session's file is {}, "
                "the store's {}: write an absolute path, for Flask-SQLAlchemy puts a relative one "
                "into the instance folder, or pass store=SqlStore(db.engine).".format(*files)
            )
    raise ConfigurationError(NEEDS_DATABASE)


def _place(url: URL) -> tuple[object, ...]:
    backend = url.get_backend_name()
    if backend == "sqlite":
        return (backend, Path(url.database or "").resolve())
    if backend in MYSQL:
        # Flask-SQLAlchemy adds a charset, which changes nothing here.
        return ("mysql", url.host, url.port, url.database, url.query.get("unix_socket"))
    return (backend, url.host, url.port, url.database, url.query)


def begin(session: Session) -> Connection:
    """Return the connection of a session that has none yet, with a transaction begun on it.

    On PostgreSQL and MySQL it is READ COMMITTED: the keeper changes the claim while the view runs,
    a conflict with the completion in REPEATABLE READ.
    """
    bind = session.get_bind()
    may_isolate = isinstance(bind, Engine) and bind.dialect.driver in _ISOLATING_BEGIN
    if may_isolate and joined_connection(session) is None:
        with suppress(InvalidRequestError):  # a listener has begun the connection's transaction
            return session.connection(execution_options={"isolation_level": _ISOLATION})
    connection = session.connection()
    if not isinstance(bind, Engine):
        return connection
    # A listener of the application may have read or written: a level cannot be set within a
    # transaction.
    is_begun = not commits_by_itself(connection)
    if is_begun and has_written(session):
        return connection
    if is_begun and connection.dialect.name == "postgresql":
        join(connection)
    else:
        _isolate(connection)
    return connection


def join(connection: Connection) -> bool:
    """Begin on a connection whose transaction has only read, and return whether it continues.

    It does on PostgreSQL at READ COMMITTED. Elsewhere its snapshot may be older than the claim,
    which MariaDB then refuses to complete (1020): it is committed, and another one begins on the
    same connection. SQLAlchemy would return that one to its pool, with its tenant.
    """
    if not commits_by_itself(connection):
        level = connection.info.get(LEVEL)  # None but on PostgreSQL
        if level in ("read committed", "read uncommitted"):
            return True
        connection.dialect.do_commit(connection.connection)
        if level is not None:
            _warn_of_level()
    _isolate(connection)
    return False


def restart(connection: Connection) -> None:
    """Roll back all that a connection has written since `join`."""
    if commits_by_itself(connection):
        connection.exec_driver_sql("ROLLBACK")
    else:
        connection.dialect.do_rollback(connection.connection)


def _isolate(connection: Connection) -> None:
    by_itself, name = commits_by_itself(connection), connection.dialect.name
    if name in MYSQL:  # InnoDB's transaction begins with the first statement
        _set_level(connection)
    if by_itself:
        # Some drivers then send neither a COMMIT nor a ROLLBACK of their own.
        for end in ("commit", "rollback"):
            event.listen(connection, end, partial(Connection.exec_driver_sql, statement=end))
        connection.exec_driver_sql("BEGIN")
    if name == "postgresql":
        _set_level(connection)


def _set_level(connection: Connection) -> None:
    """Set the level by the driver's cursor: a listener at SQLAlchemy's events may read first.

    A transaction of MySQL's that has begun has only read, in a listener: it is committed. Only the
    server knows it.
    """
    statement = f"SET TRANSACTION ISOLATION LEVEL {_ISOLATION}"
    with closing(connection.connection.cursor()) as cursor:
        try:
            cursor.execute(statement)
        except Exception as error:
            if mysql.error_number(error) != _IN_TRANSACTION:
                raise
            connection.dialect.do_commit(connection.connection)
            cursor.execute(statement)


@cache
def _warn_of_level() -> None:
    _logger.warning(
        "Flask-Idempotence: a guard with within= has committed a transaction that had only read, "
        "and begun another one, since its isolation level is above READ COMMITTED. What SET LOCAL "
        "had set is gone, and so are the locks of that transaction: use SET, or an engine at READ "
        "COMMITTED. This is logged once."
    )


@contextmanager
def store_errors(session: Session | None = None) -> Iterator[None]:
    """Raise a `StoreError` in place of an error that is an outage; nothing was committed.

    A session is rolled back then, so that it finds the database when it is back.
    """
    try:
        yield
    except Exception as error:
        if not is_outage(error):
            raise
        if session is not None:
            undo(session)
        raise StoreError(text_of(error), sent=False) from error


def undo(session: Session) -> None:
    """Roll a session back, as far as the database answers."""
    with suppress(Exception):
        session.rollback()


def is_outage(error: Exception) -> bool:
    """Whether the cause is not the statement: connection lost, lock time-out, deadlock victim.

    An error of the driver that SQLAlchemy has not wrapped comes from an event of its pool.
    """
    if isinstance(error, DBAPIError):
        number = mysql.error_number(error.orig) if error.orig else None
        if number is not None:  # MySQL: all other errors are an OperationalError
            return mysql.is_outage(number)
        return isinstance(error, OperationalError) or error.connection_invalidated
    # The package of each driver is a module of DB-API 2.0 (PEP 249).
    module = sys.modules.get(type(error).__module__.partition(".")[0])
    of_driver = getattr(module, "Error", ()) if hasattr(module, "apilevel") else ()
    return isinstance(error, (OSError, PoolTimeout, of_driver))


def text_of(error: Exception) -> str:
    """Describe an error without its statement and parameters, which are the application's own."""
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: the database did not commit"
