"""MySQL and MariaDB, with tables of InnoDB. No statement needs RETURNING, which MySQL lacks."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import mysql
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.compiler import compiles

from ...errors import ConfigurationError, StoreNotReady
from ..base import ClaimOutcome, Entry, Outcome
from . import statements
from .dialect import (
    LOCK_SHARE,
    OK,
    STALE,
    STATEMENT_SHARE,
    Dialect,
    Info,
    Insert,
    Result,
    StoreConnection,
    Trouble,
    Values,
    kind_and_owner,
)
from .statements import KEY_BYTES, NAME, now, table

_row = table.c

# The value of LAST_INSERT_ID after a row has not given way. The count of rows is ambiguous: an
# unchanged row counts 0 or, with CLIENT_FOUND_ROWS, 1 as a new one does.
_REFUSED = 1

_SESSION = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # A key that is too long must be an error, and an empty text no NULL. ANSI_QUOTES stays, since
    # SQLAlchemy quotes names by it.
    "SET SESSION sql_mode = "
    "IF(FIND_IN_SET('ANSI_QUOTES', @@sql_mode), 'ANSI_QUOTES,STRICT_ALL_TABLES', "
    "'STRICT_ALL_TABLES'), "
    "innodb_lock_wait_timeout = {lock}, lock_wait_timeout = {lock}"
    "/*!80000 , max_execution_time = {milliseconds} */"  # MySQL limits SELECT only
    "/*M!100600 , max_statement_time = {seconds} */",  # MariaDB limits all
)

# The numbers of errors are listed in
# https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html
# https://mariadb.com/kb/en/mariadb-error-code-reference/
_TROUBLES = {
    1020: Trouble.CONFLICT,  # ER_CHECKREAD: changed since the snapshot (MariaDB 11.6 on)
    1213: Trouble.CONFLICT,  # ER_LOCK_DEADLOCK
    3101: Trouble.CONFLICT,  # ER_TRANSACTION_ROLLBACK_DURING_COMMIT, of a group of servers
    1053: Trouble.UNKNOWN,  # ER_SERVER_SHUTDOWN
    1180: Trouble.UNKNOWN,  # ER_ERROR_DURING_COMMIT
    1927: Trouble.UNKNOWN,  # ER_CONNECTION_KILLED
    4031: Trouble.UNKNOWN,  # ER_CLIENT_INTERACTION_TIMEOUT
    1054: Trouble.NOT_READY,  # ER_BAD_FIELD_ERROR
    1146: Trouble.NOT_READY,  # ER_NO_SUCH_TABLE
    1364: Trouble.NOT_READY,  # ER_NO_DEFAULT_FOR_FIELD
    1932: Trouble.NOT_READY,  # ER_NO_SUCH_TABLE_IN_ENGINE
    # These are refused as most others are, but the statement is not their cause:
    1021: Trouble.REFUSED,  # ER_DISK_FULL
    1028: Trouble.REFUSED,  # ER_FILSORT_ABORT
    1030: Trouble.REFUSED,  # ER_GET_ERRNO
    1037: Trouble.REFUSED,  # ER_OUTOFMEMORY
    1040: Trouble.REFUSED,  # ER_CON_COUNT_ERROR
    1114: Trouble.REFUSED,  # ER_RECORD_FILE_FULL
    1203: Trouble.REFUSED,  # ER_TOO_MANY_USER_CONNECTIONS
    1205: Trouble.REFUSED,  # ER_LOCK_WAIT_TIMEOUT
    1226: Trouble.REFUSED,  # ER_USER_LIMIT_REACHED
    1290: Trouble.REFUSED,  # ER_OPTION_PREVENTS_STATEMENT: read-only
    1317: Trouble.REFUSED,  # ER_QUERY_INTERRUPTED
    1792: Trouble.REFUSED,  # ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
    1836: Trouble.REFUSED,  # ER_READ_ONLY_MODE
    1969: Trouble.REFUSED,  # ER_STATEMENT_TIMEOUT, of MariaDB
    3024: Trouble.REFUSED,  # ER_QUERY_TIMEOUT, of MySQL
    3100: Trouble.REFUSED,  # ER_RUN_HOOK_ERROR, of a group of servers
}

# Errors that the client libraries report: no connection, or a broken one.
_OF_DRIVERS = range(2000, 3000)

_DISCARD = sa.delete(table).where(
    statements.IS_OWN, _row.kind == sa.bindparam("this_kind", type_=sa.String())
)

_LAYOUT = sa.text(
    "SELECT t.engine = 'InnoDB', c.column_type = :type AND c.column_key = 'PRI' "
    "FROM information_schema.tables t LEFT JOIN information_schema.columns c "
    "ON c.table_schema = t.table_schema AND c.table_name = t.table_name AND c.column_name = 'key' "
    "WHERE t.table_schema = DATABASE() AND t.table_name = :name"
)
# What it says of the table, in order.
_PARTS = ("ENGINE=InnoDB", f"key VARBINARY({KEY_BYTES}) PRIMARY KEY")

_REMEDY = (
    "Keys must be compared byte by byte, in a table with transactions: migrate it to the layout "
    "that 'flask idempotence init-db --sql' prints."
)


class MySQL(Dialect):
    _new_row = "inserted"
    _schema = sa.text("SELECT DATABASE()")
    # https://dev.mysql.com/doc/refman/8.4/en/innodb-parameters.html
    _facts = sa.text(
        "SELECT IF(INSTR(LOWER(VERSION()), 'mariadb'), 'MariaDB', 'MySQL') AS product, "
        "VERSION() AS version, "
        "@@innodb_flush_log_at_trx_commit = 1 AND (NOT @@log_bin OR @@sync_binlog = 1) "
        "AS survives_crash, CONCAT('innodb_flush_log_at_trx_commit is ', "
        "@@innodb_flush_log_at_trx_commit, ', sync_binlog is ', @@sync_binlog) AS durability, "
        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1000000 AS clock"
    )

    def __init__(self) -> None:
        super().__init__(mysql.insert)
        self._knows_layout = False

    def check(self, engine: sa.Engine) -> None:
        if engine.dialect.driver not in ("pymysql", "mysqldb"):
            raise ConfigurationError(
                f"The driver {engine.dialect.driver} does not expose its socket, so a frozen "
                "server would block requests for ever: begin the URL with mysql+pymysql:// "
                "(pip install pymysql) or mysql+mysqldb:// (pip install mysqlclient)."
            )

    def _on_conflict(
        self, insert: Insert, replaced: statements.Columns, where: sa.ColumnElement[bool] | None
    ) -> sa.Insert:
        if where is not None:
            # Each column has the condition. They are assigned from left to right: the condition
            # holds for as long as `expires`, the last one, has not been assigned.
            unchanged: statements.Columns = {name: _row[name] for name in replaced}
            # Always 1; naming a column keeps the optimizer from folding it.
            refused: sa.ColumnElement[bool] = sa.literal_column(
                f"LAST_INSERT_ID(LENGTH({NAME}.kind) > 0)"
            )
            unchanged["kind"] = sa.case((refused, _row.kind), else_=_row.kind)
            replaced = {
                name: sa.case((where, value), else_=unchanged[name])
                for name, value in replaced.items()
            }
        expires = replaced.pop("expires")
        in_order = [*replaced.items(), ("expires", expires)]
        upsert: sa.Insert = insert.on_duplicate_key_update(in_order)
        return upsert

    def claim(self, connection: StoreConnection, values: Values) -> ClaimOutcome:
        if not self._knows_layout:
            self._check_layout(connection)
        return super().claim(connection, values)

    def _returning(self, upsert: sa.Insert) -> sa.Executable:
        return upsert

    def _has_written(self, upsert: Result) -> bool:
        return bool(upsert.lastrowid != _REFUSED)

    def prune(self, connection: StoreConnection, most: int) -> int:
        """Remove expired rows, without a wait for those that are locked."""
        with connection.transaction("START TRANSACTION"):
            doomed = connection.sqlalchemy.execute(statements.DOOMED, {"most": most})
            keys = doomed.scalars().all()
            # It removes them one by one: for several at once, InnoDB may read the whole of a small
            # table, and wait for rows that are locked.
            for key in keys:
                connection.send(statements.REMOVE, {"this_key": key})
        return len(keys)

    def discard(
        self, connection: StoreConnection, seen: Sequence[tuple[str, Entry]]
    ) -> list[Outcome]:
        """Remove keys whose entries are still the same, one by one as in `prune`."""
        outcomes = []
        with connection.transaction("START TRANSACTION"):
            for key, entry in seen:
                kind, owner = kind_and_owner(entry)
                values = {"this_key": key, "this_owner": owner, "this_kind": kind}
                outcomes.append(OK if connection.send(_DISCARD, values).rowcount else STALE)
        return outcomes

    def schema(self, connection: StoreConnection) -> str | None:
        """Return the database of the table: a session may be in another one, by USE."""
        self._check_layout(connection)
        return super().schema(connection)

    def _check_layout(self, connection: StoreConnection) -> None:
        """Check the table's layout: in a wrong one, keys or transactions would not hold."""
        wrong = _wrong_parts(connection.sqlalchemy)
        if wrong:
            text = f"The table {NAME} lacks {', '.join(wrong)}."
            raise StoreNotReady(text, remedy=_REMEDY)
        self._knows_layout = wrong is not None

    def prepare(self, connection: DBAPIConnection, seconds: float, info: Info) -> None:
        del info
        values = {
            "lock": max(1, int(seconds * LOCK_SHARE)),
            "seconds": seconds * STATEMENT_SHARE,
            "milliseconds": max(1, round(seconds * STATEMENT_SHARE * 1000)),
        }
        cursor = connection.cursor()
        for text in _SESSION:
            cursor.execute(text.format(**values))
        cursor.close()

    def trouble(self, error: BaseException) -> Trouble:
        number = error_number(error)
        if number is None or number in _OF_DRIVERS:
            return Trouble.UNKNOWN
        return _TROUBLES.get(number, Trouble.REFUSED)

    def _missing_parts(self, connection: Connection) -> tuple[str, ...]:
        return super()._missing_parts(connection) + (_wrong_parts(connection) or ())


def error_number(error: BaseException) -> int | None:
    number = getattr(error, "errno", None)  # mysql-connector, and MariaDB's own
    if number is None and error.args:
        number = error.args[0]
    return number if isinstance(number, int) and number > 0 else None


def is_outage(number: int) -> bool:
    """Return whether the cause of an error is the server's state, and not the statement."""
    known = _TROUBLES.get(number, Trouble.NOT_READY)
    return known is not Trouble.NOT_READY or number in _OF_DRIVERS


@compiles(now, "mysql", "mariadb")
def _now(*_: object, **__: object) -> str:
    # It is the time at which the statement began (SYSDATE would differ from row to row), and does
    # not depend on the session's time zone: NOW has one hour of autumn twice.
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"


def _wrong_parts(connection: Connection) -> tuple[str, ...] | None:
    """Return the parts of the table that are not as `metadata` makes them; None without it."""
    values = {"name": NAME, "type": f"varbinary({KEY_BYTES})"}
    layout = connection.execute(_LAYOUT, values).first()
    if layout is None:
        return None
    return tuple(part for part, is_right in zip(_PARTS, layout, strict=True) if not is_right)
