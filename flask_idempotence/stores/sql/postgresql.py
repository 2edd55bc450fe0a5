"""PostgreSQL, with or without a connection pooler such as PgBouncer in front of it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.compiler import compiles

from ..base import CLAIMED, ClaimOutcome
from ..facts import DatabaseFacts
from . import statements
from .dialect import (
    LOCK_SHARE,
    NO_CONTEXT,
    STATEMENT_SHARE,
    Dialect,
    Info,
    StoreConnection,
    Trouble,
    Values,
    outcome_of,
)
from .statements import now, table, word

_GRANTED = "granted"

_TIMEOUTS = (
    "{set} lock_timeout = {lock}; {set} statement_timeout = {statement};"
    "{set} idle_in_transaction_session_timeout = {statement}"
)
_SESSION = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;" + _TIMEOUTS
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED;" + _TIMEOUTS

# Key of the statements that begin a transaction, in the `info` of a connection to a pooler.
_POOLED = "flask_idempotence begin"

# Key in that `info`: whether the application's connections prepare statements by name.
_PREPARES = "flask_idempotence prepares"

# Each SQLSTATE is listed in https://www.postgresql.org/docs/current/errcodes-appendix.html
_TROUBLES = {
    "40001": Trouble.CONFLICT,  # serialization_failure
    "40P01": Trouble.CONFLICT,  # deadlock_detected
    "40003": Trouble.UNKNOWN,  # statement_completion_unknown
    "23502": Trouble.NOT_READY,  # not_null_violation, of a column that is not ours
    "42P01": Trouble.NOT_READY,  # undefined_table
    "42703": Trouble.NOT_READY,  # undefined_column
    "42P10": Trouble.NOT_READY,  # no unique constraint for ON CONFLICT
    "42804": Trouble.NOT_READY,  # datatype_mismatch
    "57P01": Trouble.UNKNOWN,  # admin_shutdown
    "57P02": Trouble.UNKNOWN,  # crash_shutdown
}


class PostgreSQL(Dialect):
    _schema = sa.text(  # `search_path` decides
        "SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.oid = to_regclass(:name)"
    )
    _facts = sa.text(
        "SELECT 'PostgreSQL' AS product, "
        "concat(number / 10000, '.', mod(number, 10000)) AS version, "
        "fsync = 'on' AND committing <> 'off' AS survives_crash, "
        "concat('fsync is ', fsync, ', synchronous_commit is ', committing) AS durability, "
        "extract(epoch FROM clock_timestamp())::float8 AS clock "
        "FROM current_setting('fsync') fsync, current_setting('synchronous_commit') committing, "
        "CAST(current_setting('server_version_num') AS int) number"
    )

    def __init__(self) -> None:
        super().__init__(postgresql.insert)
        # One round trip for every outcome. A row in the way is only read: rivals and replays
        # lock nothing. Where it came to be after the statement began, nothing comes back.
        seen = statements.IN_THE_WAY.cte("seen")
        new = sa.select(*statements.NEW_CLAIM.values()).where(~sa.select(seen.c.kind).exists())
        insert = postgresql.insert(table).from_select(
            list(statements.NEW_CLAIM), new, include_defaults=False
        )
        claim = self._upsert(statements.NEW_CLAIM, statements.MAY_CLAIM, insert)
        granted = claim.returning(word(_GRANTED).label("kind")).cte(_GRANTED)
        nothing = [sa.null().label(name) for name in ("fingerprint", "left", "data", "owner")]
        self._in_one = sa.union_all(sa.select(granted.c.kind, *nothing), sa.select(*seen.c))

        # It would lock rows in the order of its plan, and two batches could wait for each other.
        keys = sa.select(table.c.key).where(statements.TO_RENEW).order_by(table.c.key)
        locked = keys.with_for_update().cte("locked")
        self._renew = statements.RENEW.where(table.c.key.in_(sa.select(locked.c.key)))

    def _claim_once(self, connection: StoreConnection, values: Values) -> ClaimOutcome | None:
        row = connection.first(self._in_one, values)
        if row is None:
            return None
        return CLAIMED if row[0] == _GRANTED else outcome_of(row, values)

    def prepare(self, connection: DBAPIConnection, seconds: float, info: Info) -> None:
        """Limit every statement and every wait for a lock on the server, too.

        Behind a pooler the server's session is shared with other clients, so that each
        transaction sets the limits for itself, and nothing is prepared by name.
        """
        lock, statement = (
            max(1, round(seconds * share * 1000)) for share in (LOCK_SHARE, STATEMENT_SHARE)
        )
        cursor = connection.cursor()
        # At the start of a connection, PostgreSQL sends the number of the process that serves it;
        # a pooler sends a number of its own. A driver that does not show it counts as pooled,
        # which is slower and always right.
        cursor.execute("SELECT pg_backend_pid()")
        if cursor.fetchall()[0][0] == _backend_at_start(connection):
            # It sends them one by one: psycopg may have been set to prepare each statement.
            for text in _SESSION.format(set="SET", lock=lock, statement=statement).split(";"):
                cursor.execute(text)
        else:
            info[_POOLED] = _BEGIN.format(set="SET LOCAL", lock=lock, statement=statement)
            if getattr(connection, "prepare_threshold", None) is not None:  # psycopg
                info[_PREPARES] = True
                connection.prepare_threshold = None
        cursor.close()

    def operation(
        self, connection: StoreConnection, *, writes: bool
    ) -> AbstractContextManager[None]:
        """Begin and commit behind a pooler, where `SET LOCAL` alone ends with the operation."""
        del writes
        begin = connection.info.get(_POOLED)
        return NO_CONTEXT if begin is None else connection.transaction(begin)

    def trouble(self, error: BaseException) -> Trouble:
        state = state_of(error)
        if state is None or state.startswith("08"):
            return Trouble.UNKNOWN
        return _TROUBLES.get(state, Trouble.REFUSED)

    def facts(self, connection: StoreConnection) -> DatabaseFacts:
        pooled, prepares = _POOLED in connection.info, _PREPARES in connection.info
        return replace(super().facts(connection), pooled=pooled, prepares=prepares)


def state_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of an error of any driver; None where it has none."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state is None and error.args and isinstance(error.args[0], dict):
        state = error.args[0].get("C")  # pg8000
    return state if isinstance(state, str) else None


@compiles(now, "postgresql")
def _now(*_: object, **__: object) -> str:
    # now() is constant within a transaction; clock_timestamp() may differ from row to row and
    # cannot be looked up in an index.
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)"


def _backend_at_start(connection: DBAPIConnection) -> int | None:
    backend = getattr(getattr(connection, "info", None), "backend_pid", None)  # psycopg, psycopg2
    if backend is None:
        data = getattr(connection, "_backend_key_data", None)  # pg8000
        backend = int.from_bytes(data[:4]) if isinstance(data, bytes) else None
    return backend if isinstance(backend, int) else None
