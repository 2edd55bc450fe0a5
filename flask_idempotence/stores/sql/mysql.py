"""MySQL and MariaDB, with tables of InnoDB. No statement needs RETURNING, which MySQL lacks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import mysql
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.compiler import compiles

from ...errors import ConfigurationError, StoreNotReady
from ..base import (
    CLAIMED,
    ClaimOutcome,
    Completion,
    Entry,
    Outcome,
    Renewal,
    TokenOutcome,
)
from ..facts import DatabaseFacts
from . import inspection, mysql_errors, mysql_facts, statements
from .connection import DatabaseConnection, Statement, StoreConnection, Values
from .dialect import OK, STALE, Dialect, Info, Trouble, outcome_of, values_of
from .table import (
    CLAIM,
    KEY,
    NAME,
    TOKEN,
    TOKEN_AGAIN,
    is_a,
    milliseconds,
    now,
    table,
)

_row = table.c

_REFUSED = 1
"""The value of LAST_INSERT_ID after a row has not given way. The count of rows is ambiguous: an
unchanged row counts 0 or, with CLIENT_FOUND_ROWS, 1 as a new one does."""

_LOCK_SHARE, _STATEMENT_SHARE = 0.8, 0.9
"""The server's time-outs as shares of the deadline. That of locks counts whole seconds."""

_DRIVERS = ("pymysql", "mysqldb")

_SESSION = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # A key that is too long must be an error, and an empty text no NULL. ANSI_QUOTES stays, since
    # SQLAlchemy quotes names by it.
    "SET SESSION sql_mode = "
    "IF(FIND_IN_SET('ANSI_QUOTES', @@sql_mode), 'ANSI_QUOTES,STRICT_ALL_TABLES', "
    "'STRICT_ALL_TABLES'), "
    "innodb_lock_wait_timeout = {lock}, lock_wait_timeout = {lock}"
    "/*!80000 , max_execution_time = {milliseconds} */"  # of MySQL, and of SELECT only
    "/*M!100600 , max_statement_time = {seconds} */",  # of MariaDB
)

_RENEW = (
    sa.update(table)
    .where(
        _row.key.in_(sa.bindparam("keys", expanding=True, type_=KEY)),
        sa.tuple_(_row.key, _row.owner).in_(sa.bindparam("claims", expanding=True)),
        is_a(CLAIM),
        _row.lease_ends > now(),
    )
    # Assigned from left to right, so that the first one sees the old value of the second.
    .ordered_values(
        *(
            (_row[name], statements.renewed(statements.LEASE)[name])
            for name in ("expires", "lease_ends")
        )
    )
)
_RENEWED = sa.select(_row.key, _row.owner).where(
    _row.key.in_(sa.bindparam("keys", expanding=True, type_=KEY)),
    is_a(CLAIM),
    _row.lease_ends > now(),
)
_DATABASE = Statement(sa.select(sa.func.DATABASE(type_=sa.Text())))
_DOOMED = (
    sa.select(_row.key)
    .where(_row.expires <= now())
    .order_by(_row.expires)
    .limit(sa.bindparam("most", type_=sa.BigInteger()))
    .with_for_update(skip_locked=True)
)


class MySQL(Dialect):
    """MySQL or MariaDB."""

    _new_row = "inserted"

    def __init__(self) -> None:
        super().__init__(mysql.insert)
        self._in_the_way = Statement(statements.IN_THE_WAY)
        self._claim = Statement(
            self._upsert(statements.NEW_CLAIM, statements.MAY_CLAIM, statements.claimed_anew)
        )
        self._complete = Statement(self._upsert(statements.COMPLETED, statements.MAY_COMPLETE))
        self._remove = Statement(inspection.REMOVE)
        self._release = Statement(sa.delete(table).where(statements.HAS_CLAIM))
        self._takes = [
            (outcome, Statement(sa.delete(table).where(statements.MAY_TAKE, is_a(kind))))
            for kind, outcome in (
                (TOKEN, TokenOutcome.TAKEN),
                (TOKEN_AGAIN, TokenOutcome.TAKEN_AGAIN),
            )
        ]
        self._discard = Statement(
            inspection.REMOVE.where(
                _row.kind == sa.bindparam("this_kind", type_=sa.String()),
                _row.owner == sa.bindparam("this_owner", type_=sa.LargeBinary()),
            )
        )
        self._knows_layout = False

    def check(self, engine: sa.Engine) -> None:
        """Raise ConfigurationError for a driver whose waits for a server cannot be ended."""
        if engine.dialect.driver not in _DRIVERS:
            raise ConfigurationError(
                f"The driver {engine.dialect.driver} does not expose its socket, so a frozen "
                "server would block requests for ever: begin the URL with mysql+pymysql:// "
                "(pip install pymysql) or mysql+mysqldb:// (pip install mysqlclient)."
            )

    def _on_conflict(
        self, insert: Any, replaced: statements.Columns, where: sa.ColumnElement[bool] | None
    ) -> sa.Insert:
        if where is not None:
            # A condition for each column. They are assigned from left to right: the condition
            # holds for as long as `expires`, the last one, has not been assigned.
            unchanged: statements.Columns = {name: _row[name] for name in replaced}
            # Of the row, so that no optimizer takes it for a constant: always 1.
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
        """Take a key for its first caller, or return its holder; outside a transaction."""
        if not self._knows_layout:
            self._check_layout(connection)
        return super().claim(connection, values)

    def _claim_once(self, connection: StoreConnection, values: Values) -> ClaimOutcome | None:
        # Read first: the write would lock a row in the way, and wait behind a transaction that
        # has locked it.
        row = connection.first(self._in_the_way, values)
        if row is not None:
            return outcome_of(row, values)
        return None if connection.change(self._claim, values).last_id == _REFUSED else CLAIMED

    def complete(self, connection: DatabaseConnection, completion: Completion) -> Outcome:
        """Replace a claim by a record, if it is the owner's."""
        is_refused = connection.change(self._complete, values_of(completion)).last_id == _REFUSED
        return STALE if is_refused else OK

    def renew(self, connection: StoreConnection, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Restart the leases of live claims, those of one length in one statement."""
        last = {(key, owner): lease for key, owner, lease in renewals}
        # In one order, so that no two batches wait for each other.
        claims = sorted(last, key=lambda claim: (last[claim], claim))
        renewed = set()
        for lease, group in groupby(claims, key=last.__getitem__):
            renewed |= _renew(connection.sqlalchemy, milliseconds(lease), list(group))
        return [OK if (key, owner) in renewed else STALE for key, owner, _ in renewals]

    def release(self, connection: StoreConnection, key: str, owner: bytes) -> Outcome:
        """Remove a claim, if it is the owner's."""
        if connection.change(self._release, {"this_key": key, "this_owner": owner}).rows:
            return OK
        return STALE if connection.first(self._exists, {"this_key": key}) else OK

    def take_token(self, connection: StoreConnection, key: str, subject: bytes) -> TokenOutcome:
        """Remove a token, if it is the subject's or bound to none."""
        for outcome, take in self._takes:
            if connection.change(take, {"this_key": key, "this_owner": subject}).rows:
                return outcome
        if connection.first(self._is_token, {"this_key": key}):
            return TokenOutcome.NOT_YOURS
        return TokenOutcome.ABSENT

    def prune(self, connection: StoreConnection, most: int) -> int:
        """Remove expired rows, without a wait for those that are locked."""
        with connection.transaction("START TRANSACTION"):
            keys = connection.sqlalchemy.execute(_DOOMED, {"most": most}).scalars().all()
            # One by one: for several at once, InnoDB may read the whole of a small table, and wait
            # for rows that are locked.
            for key in keys:
                connection.change(self._remove, {"this_key": key})
        return len(keys)

    def discard(
        self, connection: StoreConnection, seen: Sequence[tuple[str, Entry]]
    ) -> list[Outcome]:
        """Remove keys whose entries are still the same, one by one as in `prune`."""
        with connection.transaction("START TRANSACTION"):
            return [self._discard_one(connection, key, entry) for key, entry in seen]

    def _discard_one(self, connection: StoreConnection, key: str, entry: Entry) -> Outcome:
        kind, owner = inspection.kind_and_owner(entry.mark)
        values = {"this_key": key, "this_owner": owner, "this_kind": kind}
        return OK if connection.change(self._discard, values).rows else STALE

    def schema(self, connection: StoreConnection) -> str | None:
        """Return the database of the table: a session may be in another one, by USE."""
        self._check_layout(connection)
        name: str | None = connection.rows(_DATABASE, {})[0][0]
        return name

    def _check_layout(self, connection: StoreConnection) -> None:
        """Check the table's layout: in a wrong one, keys or transactions would not hold."""
        wrong = mysql_facts.wrong_parts(connection.sqlalchemy)
        if wrong:
            text = f"The table {NAME} lacks {', '.join(wrong)}."
            raise StoreNotReady(text, remedy=mysql_facts.REMEDY)
        self._knows_layout = wrong is not None

    def count_all(self, connection: Connection) -> int | None:
        """Return how many rows there are by the server's estimate."""
        return mysql_facts.count_all(connection)

    def prepare(self, connection: DBAPIConnection, seconds: float, info: Info) -> None:
        """Set the isolation level, the modes and the limits of the session."""
        del info
        values = {
            "lock": max(1, int(seconds * _LOCK_SHARE)),
            "seconds": seconds * _STATEMENT_SHARE,
            "milliseconds": max(1, round(seconds * _STATEMENT_SHARE * 1000)),
        }
        cursor = connection.cursor()
        for text in _SESSION:
            cursor.execute(text.format(**values))
        cursor.close()

    def file_number(self, connection: DBAPIConnection) -> int | None:
        """Return the socket, which mysqlclient shows and PyMySQL hides."""
        for holder in (connection, getattr(connection, "_sock", None)):
            if (fileno := getattr(holder, "fileno", None)) is not None:
                return int(fileno())
        return None

    def trouble(self, error: BaseException) -> Trouble:
        """Return the effect of an error, by its number."""
        return mysql_errors.trouble(error)

    def facts(self, connection: Connection) -> DatabaseFacts:
        """Return the server's version, settings and state."""
        return mysql_facts.facts(connection)


@compiles(now, "mysql", "mariadb")
def _now(*_: object, **__: object) -> str:
    # As the statement began (SYSDATE would differ from row to row), in any time zone of
    # the session: of NOW, an hour in autumn comes twice.
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"


_Claims = list[tuple[str, bytes]]


def _renew(connection: Connection, lease: int, claims: _Claims) -> set[tuple[str, bytes]]:
    values = {"keys": [key for key, _ in claims], "claims": claims, "lease": lease}
    if connection.execute(_RENEW, values).rowcount == len(claims):
        return set(claims)
    live = {(key, bytes(owner)) for key, owner in connection.execute(_RENEWED, values)}
    return live & set(claims)
