"""Transactions on MySQL and MariaDB, whose drivers show neither their writes nor their loss.

A deadlock undoes the whole transaction of InnoDB, and `CREATE TABLE` commits it. The statements
that follow then begin another one, so that a savepoint, set at the begin, has to be there at the
end.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from ..errors import ConfigurationError
from ..stores.sql.mysql_errors import error_number

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

NAMES = frozenset({"mysql", "mariadb"})
"""SQLAlchemy's names of their dialects."""

_ISOLATION = "READ COMMITTED"
_MARK = "flask_idempotence_begin"
_NO_SUCH_SAVEPOINT = 1305  # ER_SP_DOES_NOT_EXIST

_FIRST_WORD = re.compile(
    r"(?:\s|\(|/\*.*?\*/|--[^\n]*\n)*(ROLLBACK\s+TO|[a-z]+)", re.IGNORECASE | re.DOTALL
)
_READING = {"SHOW", "SET", "DESC", "DESCRIBE", "EXPLAIN", "SAVEPOINT", "RELEASE", "ROLLBACK TO"}
_LOCKS = r"\bFOR\s+(?:UPDATE|SHARE)\b|\bLOCK\s+IN\s+SHARE\b"
_NOT_READING = {
    "SELECT": re.compile(_LOCKS, re.IGNORECASE),
    "WITH": re.compile(rf"{_LOCKS}|\b(?:UPDATE|DELETE)\b", re.IGNORECASE),
}
"""Queries that take locks or write."""


def begin(session: Session) -> Connection:
    """Begin a transaction of READ COMMITTED in a session that has begun, and mark its begin.

    Raises:
        ConfigurationError: the driver would commit every statement on its own.
    """
    bind = session.get_bind()
    level = _level_of(bind) if isinstance(bind, Engine) else _ISOLATION
    if level == "AUTOCOMMIT":
        connection = session.connection(execution_options={"isolation_level": _ISOLATION})
    else:
        connection = session.connection()
        if level != _ISOLATION:
            # Of the next transaction, which has not begun: no statement was sent.
            connection.exec_driver_sql(f"SET TRANSACTION ISOLATION LEVEL {_ISOLATION}")
    if _commits_by_itself(connection):
        raise ConfigurationError(
            "The engine of the session of within= connects with autocommit=True, which commits "
            "every statement on its own: leave that option out."
        )
    connection.exec_driver_sql(f"SAVEPOINT {_MARK}")
    return connection


def is_broken(connection: Connection) -> bool:
    """Whether the transaction that `begin` has begun is gone, with its writes."""
    try:
        connection.exec_driver_sql(f"RELEASE SAVEPOINT {_MARK}")
    except DBAPIError as error:
        if error.orig is None or error_number(error.orig) != _NO_SUCH_SAVEPOINT:
            raise
        return True
    return False


_writes: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
"""Statements that may have written, on each connection that has joined a session."""

_observed: WeakSet[Engine] = WeakSet()


def writes_on(connection: Connection) -> int:
    """Return how many statements that may write a connection has executed since the first call."""
    if _commits_by_itself(connection):
        return 0
    if connection.engine not in _observed:
        event.listen(connection.engine, "before_cursor_execute", _count)
        _observed.add(connection.engine)
    return _writes.setdefault(connection, 0)


def _count(connection: Connection, _cursor: object, statement: str, *_more: object) -> None:
    if connection in _writes and may_write(statement):
        _writes[connection] += 1


def may_write(statement: str) -> bool:
    """Return whether a statement may leave anything that a rollback would undo."""
    first = _FIRST_WORD.match(statement)
    if first is None:
        return True
    word = " ".join(first[1].upper().split())
    writing = _NOT_READING.get(word)
    if writing is not None:
        return writing.search(statement) is not None
    return word not in _READING


def _level_of(engine: Engine) -> str | None:
    """Return the isolation level that an engine was given; None where it was given none."""
    level: str | None = engine.get_execution_options().get("isolation_level")
    return level or getattr(engine.dialect, "_on_connect_isolation_level", None)


def _commits_by_itself(connection: Connection) -> bool:
    driver: Any = connection.connection.dbapi_connection
    get_autocommit = getattr(driver, "get_autocommit", None)  # of PyMySQL and mysqlclient
    return get_autocommit is not None and bool(get_autocommit())
