"""PostgreSQL."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Connection,
    LargeBinary,
    Text,
    bindparam,
    delete,
    func,
    literal_column,
    null,
    select,
    text,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.selectable import TableValuedAlias

from ..base import CLAIMED, ClaimOutcome, Outcome, Renewal
from ..facts import DatabaseFacts
from .dialect import Dialect, Trouble
from .pooler import is_direct, prepares_by_name
from .rows import outcome_of
from .schema import count_expired, what_is_missing
from .statements import CLAIMED_ANEW, IN_THE_WAY, LOOK_UP, MAY_CLAIM, NEW_CLAIM, OK, STALE
from .table import CLAIM, NAME, is_a, milliseconds, now, table, word

_row = table.c
_GRANTED = "granted"

_LOCKS_WITHIN, _ANSWERS_WITHIN = 0.8, 0.9
"""Parts of the deadline. The server's own answer that it was too long says that nothing happened;
ours, a little later, can only say that nobody knows."""

_SETTINGS = (
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;"
    "SET lock_timeout = {locks}; SET statement_timeout = {answers};"
    "SET idle_in_transaction_session_timeout = {answers}"
)
"""For a session of our own."""

_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED;"
    "SET LOCAL lock_timeout = {locks}; SET LOCAL statement_timeout = {answers};"
    "SET LOCAL idle_in_transaction_session_timeout = {answers}"
)
"""For one transaction, in one round trip."""

_POOLED = "flask_idempotence begin"
"""Where the `info` of a connection through a pooler holds what begins a transaction of ours."""

_PREPARES = "flask_idempotence prepares"
"""Where it says that the application's connections, which are made alike, prepare by name."""

_TROUBLES = {
    "40001": Trouble.AGAIN,  # serialization_failure
    "40P01": Trouble.AGAIN,  # deadlock_detected
    "40003": Trouble.UNKNOWN,  # statement_completion_unknown
    "42P01": Trouble.NOT_READY,  # undefined_table
    "42703": Trouble.NOT_READY,  # undefined_column
    "42P10": Trouble.NOT_READY,  # no unique constraint for ON CONFLICT
    "42804": Trouble.NOT_READY,  # datatype_mismatch
    "57P01": Trouble.UNKNOWN,  # admin_shutdown
    "57P02": Trouble.UNKNOWN,  # crash_shutdown
}
"""By SQLSTATE: https://www.postgresql.org/docs/current/errcodes-appendix.html"""

_FACTS = text(
    "SELECT current_setting('server_version_num')::int AS version, "
    "pg_is_in_recovery() AS is_replica, "
    "current_setting('fsync') AS fsync, "
    "current_setting('synchronous_commit') AS synchronous_commit, "
    "extract(epoch FROM clock_timestamp())::float8 AS clock, "
    "(SELECT count(*) FROM pg_stat_replication) AS replicas"
)
_PLACE: Any = literal_column(f"CAST(to_regclass('{NAME}') AS oid)", BigInteger()).label("place")
"""Which table the name stands for on a connection, by its `search_path`."""

_COUNT = text("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(:name)")


class PostgreSQL(Dialect):
    """PostgreSQL, with any of its synchronous drivers."""

    def __init__(self) -> None:
        super().__init__(postgresql.insert)
        # One round trip, whatever comes of it. A row in the way is only read: rivals and replays
        # lock nothing. Where it came to be after the statement began, nothing comes back.
        seen = IN_THE_WAY.cte("seen")
        names = list(NEW_CLAIM)
        new = select(*NEW_CLAIM.values()).where(~select(seen.c.kind).exists())
        claim = postgresql.insert(table).from_select(names, new, include_defaults=False)
        granted = (
            claim.on_conflict_do_update(
                index_elements=[_row.key], set_=CLAIMED_ANEW, where=MAY_CLAIM
            )
            .returning(word(_GRANTED).label("kind"))
            .cte(_GRANTED)
        )
        nothing = [null().label("fingerprint"), null().label("left"), null().label("data")]
        self._claim = union_all(select(granted.c.kind, *nothing), select(*seen.c))
        batch = _batch()
        lease = batch.c.lease
        self._renew = (
            update(table)
            .values(
                lease_ends=now() + lease,
                expires=now() + lease + (_row.expires - _row.lease_ends),
            )
            .where(_row.key == batch.c.key, _row.owner == batch.c.owner)
            .where(is_a(CLAIM), _row.lease_ends > now())
            .returning(_row.key, _row.owner)
        )
        # A row that somebody is at is no longer expired soon: it is passed over, not waited for.
        doomed = (
            select(_row.key)
            .where(_row.expires <= now())
            .order_by(_row.expires)
            .limit(bindparam("most", type_=BigInteger()))
            .with_for_update(skip_locked=True)
            .cte("doomed")
        )
        # Waits for whoever is at the row: a transaction whose COMMIT is on its way, or whose end.
        self._look_up = LOOK_UP.with_for_update()
        self._prune = delete(table).where(_row.key == doomed.c.key, _row.expires <= now())
        self._complete = self._complete.returning(_PLACE)

    def _take(self, connection: Connection, values: dict[str, Any]) -> ClaimOutcome | None:
        row = connection.execute(self._claim, values).first()
        if row is None:
            return None
        return CLAIMED if row.kind == _GRANTED else outcome_of(row, values["this_fingerprint"])

    def renew(self, connection: Connection, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Begin the leases of live claims anew, all in one statement."""
        if not renewals:
            return []
        # An UPDATE takes any of several rows that match; the last that was asked for is meant.
        last = {(key, owner): (key, owner, lease) for key, owner, lease in renewals}
        # In one order, so that no two batches wait for each other.
        keys, owners, leases = zip(*sorted(last.values()), strict=True)
        values = {
            "keys": list(keys),
            "owners": list(owners),
            "leases": [milliseconds(lease) for lease in leases],
        }
        renewed = {(row.key, bytes(row.owner)) for row in connection.execute(self._renew, values)}
        return [OK if (key, owner) in renewed else STALE for key, owner, _ in renewals]

    def place(self, connection: Connection) -> int | None:
        """Return the table's number."""
        place: int | None = connection.execute(select(_PLACE)).scalar_one()
        return place

    def prune(self, connection: Connection, most: int) -> int:
        """Remove rows that have expired."""
        return connection.execute(self._prune, {"most": most}).rowcount

    def count_all(self, connection: Connection) -> int | None:
        """Return how many rows there were when the table was last analysed."""
        count = connection.execute(_COUNT, {"name": NAME}).scalar()
        return None if count is None or count < 0 else int(count)

    def prepare(self, connection: Any, seconds: float, info: dict[Any, Any]) -> None:
        """Limit every statement and every wait for a lock on the server, too.

        Behind a pooler the server's session is shared with other clients, so that each
        transaction sets the limits for itself, and nothing is prepared by name.
        """
        locks, answers = (
            max(1, round(seconds * part * 1000)) for part in (_LOCKS_WITHIN, _ANSWERS_WITHIN)
        )
        was, connection.autocommit = connection.autocommit, True
        cursor = connection.cursor()
        if is_direct(connection, cursor):
            cursor.execute(_SETTINGS.format(locks=locks, answers=answers))
        else:
            info[_POOLED] = _BEGIN.format(locks=locks, answers=answers)
            if prepares_by_name(connection):
                info[_PREPARES] = True
                connection.prepare_threshold = None
        cursor.close()
        connection.autocommit = was

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """Begin and commit behind a pooler, where `SET LOCAL` alone ends with the operation."""
        begin = connection.info.get(_POOLED)
        if begin is None:
            yield
            return
        connection.exec_driver_sql(begin)
        try:
            yield
        except BaseException:
            with contextlib.suppress(SQLAlchemyError):
                connection.exec_driver_sql("ROLLBACK")
            raise
        connection.exec_driver_sql("COMMIT")

    def file_number(self, connection: Any) -> int | None:
        """Return the socket."""
        tell = getattr(connection, "fileno", None)
        if tell is None:  # pg8000
            tell = getattr(getattr(connection, "_usock", None), "fileno", None)
        return None if tell is None else tell()

    def trouble(self, error: BaseException) -> Trouble:
        """Return what an error means, by its SQLSTATE."""
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if state is None and error.args and isinstance(error.args[0], dict):
            state = error.args[0].get("C")  # pg8000
        if not isinstance(state, str) or state.startswith("08"):
            return Trouble.UNKNOWN
        return _TROUBLES.get(state, Trouble.REFUSED)

    def facts(self, connection: Connection) -> DatabaseFacts:
        """Return what the server says of itself."""
        missing = what_is_missing(connection)
        asked = time.time()
        told = connection.execute(_FACTS).one()
        here = (asked + time.time()) / 2
        return DatabaseFacts(
            product="PostgreSQL",
            version=(told.version // 10000, told.version % 10000),
            oldest=(12,),
            missing=missing,
            is_primary=not told.is_replica,
            survives_crash=told.fsync == "on" and told.synchronous_commit != "off",
            durability=f"fsync is {told.fsync}, synchronous_commit is {told.synchronous_commit}",
            clock_ahead=told.clock - here,
            replicas=told.replicas,
            expired=None if missing else count_expired(connection),
            pooled=_POOLED in connection.info,
            prepares=bool(connection.info.get(_PREPARES)),
        )


def _batch() -> TableValuedAlias:
    arrays = [
        bindparam("keys", type_=ARRAY(Text())),
        bindparam("owners", type_=ARRAY(LargeBinary())),
        bindparam("leases", type_=ARRAY(BigInteger())),
    ]
    return func.unnest(*arrays).table_valued("key", "owner", "lease").render_derived(name="batch")
