"""Detection of writes in a session, before its transaction is joined or committed.

A session may have connections to several databases: SQLAlchemy's events report them as they join
its transaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, event, text
from sqlalchemy.orm import Session, SessionTransaction

from ..stores.sql.statements import MYSQL

# Key in the `info` of a connection to PostgreSQL: the isolation level of its transaction.
LEVEL = "flask_idempotence level"

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
    number, connection.info[LEVEL] = connection.execute(_STATE).one()
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
