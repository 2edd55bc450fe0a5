"""Transactions on MySQL and MariaDB, whose drivers show neither their writes nor their loss.

A deadlock undoes the whole transaction of InnoDB, and `CREATE TABLE` commits it. The statements
that follow then begin another one, so that a savepoint, set at the begin, has to be there at the
end.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

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

_READS = re.compile(
    r"""(?: \s | \( | /\*.*?\*/ | --[^\n]*\n )*
    (?: SHOW | SET | DESC | EXPLAIN | SAVEPOINT | RELEASE | ROLLBACK\s+TO
      | SELECT \b (?! .* \b (?: FOR\s+(?:UPDATE|SHARE) | LOCK\s+IN\s+SHARE ) \b )
      | WITH \b (?! .* \b (?: UPDATE | DELETE | FOR\s+SHARE ) \b )
    ) \b""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
"""Statements that leave nothing which a rollback would undo."""


def begin(session: Session) -> Connection:
    """Begin a transaction of READ COMMITTED in a session that has begun, and mark its begin.

    Raises:
        ConfigurationError: the driver would commit every statement by itself.
    """
    bind = session.get_bind()
    if isinstance(bind, Engine) and _is_autocommit(bind):
        connection = session.connection(execution_options={"isolation_level": _ISOLATION})
    else:
        connection = session.connection()
        if isinstance(bind, Engine):
            # Of the next transaction, which has not begun: no statement was sent.
            connection.exec_driver_sql(f"SET TRANSACTION ISOLATION LEVEL {_ISOLATION}")
    if _commits_by_itself(connection):
        raise ConfigurationError(
            "The engine of the session of within= has connections with autocommit=True, which "
            "commit every statement by themselves: leave it out."
        )
    connection.exec_driver_sql(f"SAVEPOINT {_MARK}")
    return connection


def is_broken(connection: Connection) -> bool:
    """Whether the transaction that `begin` has begun is gone, with what was written in it."""
    try:
        connection.exec_driver_sql(f"RELEASE SAVEPOINT {_MARK}")
    except DBAPIError as error:
        if error.orig is None or error_number(error.orig) != _NO_SUCH_SAVEPOINT:
            raise
        return True
    return False


class _Writes:
    """Counts the statements on a connection that are not known to only read."""

    def __init__(self, connection: Connection) -> None:
        self.count = 0
        event.listen(connection, "before_cursor_execute", self._count)

    def _count(self, _connection: Connection, _cursor: object, text: str, *_more: object) -> None:
        self.count += _READS.match(text) is None


_writes: WeakKeyDictionary[Connection, _Writes] = WeakKeyDictionary()


def writes_on(connection: Connection) -> int:
    """Return how many writing statements a connection has executed since the first call."""
    if _commits_by_itself(connection):
        return 0
    counter = _writes.get(connection)
    if counter is None:
        counter = _writes[connection] = _Writes(connection)
    return counter.count


def _is_autocommit(engine: Engine) -> bool:
    level = engine.get_execution_options().get("isolation_level")
    return (level or getattr(engine.dialect, "_on_connect_isolation_level", None)) == "AUTOCOMMIT"


def _commits_by_itself(connection: Connection) -> bool:
    driver: Any = connection.connection.dbapi_connection
    get_autocommit = getattr(driver, "get_autocommit", None)  # of PyMySQL and mysqlclient
    return get_autocommit is not None and bool(get_autocommit())
