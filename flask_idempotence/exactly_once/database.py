"""The database behind a session: its store, the begin of a transaction, its writes and errors.

A session may have connections to several databases: SQLAlchemy's events report them as they join
its transaction.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from weakref import WeakKeyDictionary

from sqlalchemy import URL, Connection, Engine, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import (
    DBAPIError,
    DisconnectionError,
    InvalidRequestError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, QueuePool

from ..errors import NEEDS_DATABASE, ConfigurationError, StoreError
from ..stores.base import Store
from ..stores.sql import SqlStore, mysql
from ..stores.sql.statements import MYSQL

_logger = logging.getLogger("flask_idempotence")

_ISOLATION = "READ COMMITTED"
# These drivers send the isolation level with BEGIN. Others set it for the connection, which behind
# a pooler is shared with other clients.
_ISOLATING_BEGIN = frozenset({"psycopg", "psycopg2"})

_IN_TRANSACTION = 1568  # ER_CANT_CHANGE_TX_CHARACTERISTICS

# The `info` of a connection has its process under one key, and on PostgreSQL its isolation level
# under another; that of a session has the connections that have joined its transaction.
_PROCESS, _LEVEL = "flask_idempotence process", "flask_idempotence level"
_JOINED = "flask_idempotence_connections"

# A transaction gets its number when it first writes (PostgreSQL, "Transaction ID and Snapshot
# Information Functions"; this is the one that version 12 has, too).
_STATE = text("SELECT txid_current_if_assigned(), current_setting('transaction_isolation')")

_FIRST_WORD = re.compile(
    r"(?:\s|\(|/\*.*?\*/|--[^\n]*\n)*(ROLLBACK\s+TO|[a-z]+)", re.IGNORECASE | re.DOTALL
)
_READING = {"SHOW", "SET", "DESC", "DESCRIBE", "EXPLAIN", "SAVEPOINT", "RELEASE", "ROLLBACK TO"}
_READING |= {"USE", "DO"}
_LOCKS = r"\bFOR\s+(?:UPDATE|SHARE)\b|\bLOCK\s+IN\s+SHARE\b"
# Such queries take locks or write.
_NOT_READING = {
    "SELECT": re.compile(_LOCKS, re.IGNORECASE),
    "WITH": re.compile(
        rf"{_LOCKS}|\b(?:UPDATE|DELETE|INSERT)\b|\bREPLACE\s+INTO\b", re.IGNORECASE
    ),
}

# So many statements may have written, on each connection where they are counted.
_statements: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()

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
        level = connection.info.get(_LEVEL)  # None but on PostgreSQL
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


def has_written(session: Session, *, besides: Connection | None = None) -> bool:
    """Whether anything is written or pending in a session; or written `besides` a connection."""
    if besides is None and (session.new or session.dirty or session.deleted):
        return True
    joined = session.info.get(_JOINED, {}).items()
    return any(_has_written(*each) for each in joined if each[0] is not besides)


def joined_connection(session: Session) -> Connection | None:
    engine = session.get_bind().engine
    joined: Iterable[Connection] = session.info.get(_JOINED, ())
    return next((each for each in joined if each.engine is engine), None)


def forget_writes(session: Session, connection: Connection) -> None:
    """Forget the writes on a connection that were rolled back to a savepoint."""
    # PostgreSQL's transaction keeps its number: from now on, its statements are counted.
    counted = _statements_on if connection.dialect.name == "postgresql" else _changes_on
    session.info[_JOINED][connection] = counted(connection)


def first_word(statement: str) -> str | None:
    first = _FIRST_WORD.match(statement)
    return None if first is None else " ".join(first[1].upper().split())


def may_write(statement: str) -> bool:
    """Whether a statement may leave anything that a rollback would undo."""
    word = first_word(statement)
    if writing := _NOT_READING.get(word or ""):
        return writing.search(statement) is not None
    return word not in _READING


def _has_written(connection: Connection, changes: int | None) -> bool:
    if connection.invalidated:
        return False  # its writes are lost, with an error
    if connection.dialect.name != "postgresql":
        return changes is None or _changes_on(connection) != changes
    number, connection.info[_LEVEL] = connection.execute(_STATE).one()
    return number is not None and (changes is None or _statements_on(connection) != changes)


def _changes_on(connection: Connection) -> int | None:
    # MySQL does not report them. None counts as written.
    if connection.dialect.name in MYSQL:
        return 0 if commits_by_itself(connection) else _statements_on(connection)
    # Only SQLite's drivers count them, and of those no async one.
    count: int | None = getattr(connection.connection.dbapi_connection, "total_changes", None)
    return count


def commits_by_itself(connection: Connection) -> bool:
    driver = connection.connection.dbapi_connection
    get_autocommit = getattr(driver, "get_autocommit", None)  # PyMySQL and mysqlclient have it
    if get_autocommit is not None:
        return bool(get_autocommit())
    return getattr(driver, "autocommit", None) is True


def _statements_on(connection: Connection) -> int:
    """Return how many statements that may write it has executed since the first call."""
    if connection not in _statements:
        event.listen(connection, "before_cursor_execute", _count)
    return _statements.setdefault(connection, 0)


def _count(connection: Connection, _cursor: object, statement: str, *_more: object) -> None:
    if may_write(statement):
        _statements[connection] += 1


@event.listens_for(Session, "after_begin", insert=True)  # it runs before those that may write
def _join(session: Session, transaction: SessionTransaction, connection: Connection) -> None:
    if transaction.parent is None:  # a savepoint is a part of a transaction that has joined
        session.info.setdefault(_JOINED, {})[connection] = _changes_on(connection)


@event.listens_for(Session, "after_transaction_end")
def _forget(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        session.info.pop(_JOINED, None)
