"""The operations as statements on a connection, which may be in a transaction of its own.

Each changes one row under a condition, or none; the rows that come back tell which. A statement
returns its rows by RETURNING: a database without it overrides the methods that read them. Errors
are SQLAlchemy's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Delete,
    LargeBinary,
    Row,
    Table,
    Text,
    and_,
    bindparam,
    case,
    delete,
    literal,
    null,
    or_,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from ...errors import StoreError
from ..base import ClaimOutcome, Crashed, Done, Outcome, Renewal, Running, TokenOutcome
from .table import CLAIM, RECORD, TOKEN, TOKEN_AGAIN, is_a, now, table, word

T = TypeVar("T")

Values = Mapping[str, object]
"""Parameters of a statement by name; durations are milliseconds."""

OK, STALE = Outcome.OK, Outcome.STALE

_row = table.c
_is_live = _row.expires > now()
_key = bindparam("this_key", type_=Text())
_owner = bindparam("this_owner", type_=LargeBinary())
_fingerprint = bindparam("this_fingerprint", type_=LargeBinary())
_keep = bindparam("keep", type_=BigInteger())
LEASE = bindparam("lease", type_=BigInteger())

NEW_CLAIM: dict[str, ColumnElement[Any]] = {
    "key": _key,
    "kind": word(CLAIM),
    "owner": _owner,
    "fingerprint": _fingerprint,
    "lease_ends": now() + LEASE,
    "expires": now() + LEASE + _keep,
    "data": null(),
}
"""A row that claims a key."""

# A claim that was sent twice may arrive after the keeper has raised its lease.
_HAS_LONGER = and_(is_a(CLAIM), _row.owner == _owner, _row.lease_ends > now() + LEASE)
_LEASE_ENDS = case((_HAS_LONGER, _row.lease_ends), else_=now() + LEASE)

CLAIMED_ANEW = NEW_CLAIM | {"lease_ends": _LEASE_ENDS, "expires": _LEASE_ENDS + _keep}
del CLAIMED_ANEW["key"]
"""A row that has given way to a claim: the lease of an owner's own never ends earlier by that."""

MAY_CLAIM = or_(~_is_live, and_(is_a(CLAIM), _row.owner == _owner))
"""Whether an existing row gives way to a claim: it has ended, or is the owner's own."""

IN_THE_WAY = select(
    _row.kind,
    _row.fingerprint,
    (_row.lease_ends - now()).label("left"),
    _row.data,
).where(_row.key == _key, ~MAY_CLAIM)

_HAS_CLAIM = and_(_row.key == _key, is_a(CLAIM), _row.owner == _owner)
IS_RENEWABLE = and_(_HAS_CLAIM, _row.lease_ends > now())

_COMPLETED: dict[str, ColumnElement[Any]] = NEW_CLAIM | {
    "kind": word(RECORD),
    "lease_ends": null(),
    "expires": now() + _keep,
    "data": bindparam("record", type_=LargeBinary()),
}
_MAY_COMPLETE = or_(~_is_live, and_(is_a(CLAIM, RECORD), _row.owner == _owner))
_TOKEN: dict[str, ColumnElement[Any]] = NEW_CLAIM | {
    "kind": bindparam("this_kind", type_=Text()),
    "fingerprint": literal(b"", LargeBinary()),
    "lease_ends": null(),
    "expires": now() + _keep,
}

_RELEASE = delete(table).where(_HAS_CLAIM).returning(_row.key)
_EXISTS = select(_row.key).where(_row.key == _key, _is_live)
_IS_TOKEN = _EXISTS.where(is_a(TOKEN, TOKEN_AGAIN))
_IS_FOR_SUBJECT = or_(_row.owner == b"", _row.owner == _owner)
_TAKE = (
    delete(table)
    .where(_row.key == _key, is_a(TOKEN, TOKEN_AGAIN), _IS_FOR_SUBJECT, _is_live)
    .returning(_row.kind)
)
LOOK_UP = select(_row.kind).where(_row.key == _key, _row.owner == _owner, _is_live)

MOST = bindparam("most", type_=BigInteger())

_RACES = 10
"""How often a claim is sent at most: each time, the row in its way has come or gone meanwhile."""


class Statements(ABC):
    """The statements of one database.

    Args:
        insert: makes an `INSERT` that has `ON CONFLICT`.
        prune: removes expired rows, `most` at the most.
        look_up: selects the kind of an owner's row at a key.
        place: tells which table the name stands for on a connection; NULL where there is but one.
    """

    def __init__(
        self,
        insert: Callable[[Table], postgresql.Insert] | Callable[[Table], sqlite.Insert],
        prune: Delete,
        *,
        look_up: Any = LOOK_UP,
        place: ColumnElement[Any] = null(),  # noqa: B008 - a constant
    ) -> None:
        self._insert = insert
        self._prune = prune
        self._look_up = look_up
        self._place = place.label("place")
        self._complete = self._upsert(_COMPLETED, _MAY_COMPLETE).returning(self._place)
        self._put_token = self._upsert(_TOKEN)

    def _upsert(
        self,
        row: dict[str, ColumnElement[Any]],
        where: ColumnElement[bool] | None = None,
        replaced: dict[str, ColumnElement[Any]] | None = None,
    ) -> postgresql.Insert | sqlite.Insert:
        """Return a statement that inserts a row, or replaces one that meets a condition."""
        if replaced is None:
            replaced = {name: value for name, value in row.items() if name != "key"}
        insert = self._insert(table).values(row)
        return insert.on_conflict_do_update(index_elements=[_row.key], set_=replaced, where=where)

    def claim(self, connection: Connection, values: Values) -> ClaimOutcome:
        """Take a key, or say what is there.

        Args:
            connection: outside a transaction.
            values: `this_key`, `this_owner`, `this_fingerprint`, `lease`, `keep`.
        """
        for _ in range(_RACES):
            if (outcome := self._claim_once(connection, values)) is not None:
                return outcome
        raise StoreError("The key changed hands again and again.", sent=False)

    @abstractmethod
    def _claim_once(self, connection: Connection, values: Values) -> ClaimOutcome | None:
        """Take a key, or say what is there; None where that has changed in between."""

    @abstractmethod
    def renew(self, connection: Connection, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Begin the leases of live claims anew."""

    @abstractmethod
    def count_all(self, connection: Connection) -> int | None:
        """Return roughly how many rows there are, None for unknown."""

    def complete(self, connection: Connection, values: Values) -> tuple[Outcome, int | None]:
        """Replace a claim by a record, if it is the owner's.

        Args:
            connection: may be the application's, and in a transaction.
            values: `this_key`, `this_owner`, `this_fingerprint`, `record`, `keep`.

        Returns:
            The outcome, and the place of the table that was written.
        """
        # The table is the one of the claim, whatever schemas the application has for its own.
        untranslated = {"schema_translate_map": None}
        row = connection.execute(self._complete, values, execution_options=untranslated).first()
        return (STALE, None) if row is None else (OK, row.place)

    def place(self, connection: Connection) -> int | None:
        """Return the number of the table that a connection sees; None where there is but one."""
        number: int | None = connection.execute(select(self._place)).scalar_one()
        return number

    def look_up(self, connection: Connection, key: str, owner: bytes) -> str | None:
        """Return what an owner has at a key: `"claim"`, `"record"`, or None."""
        kind = connection.execute(self._look_up, {"this_key": key, "this_owner": owner}).scalar()
        return kind if kind in (CLAIM, RECORD) else None

    def release(self, connection: Connection, key: str, owner: bytes) -> Outcome:
        """Remove a claim, if it is the owner's."""
        if connection.execute(_RELEASE, {"this_key": key, "this_owner": owner}).first():
            return OK
        return STALE if connection.execute(_EXISTS, {"this_key": key}).first() else OK

    def put_token(self, connection: Connection, values: Values) -> None:
        """Store a token.

        Args:
            connection: any.
            values: `this_key`, `this_owner` (its subject), `keep`, `this_kind`.
        """
        connection.execute(self._put_token, values)

    def take_token(self, connection: Connection, key: str, subject: bytes) -> TokenOutcome:
        """Remove a token, if it is the subject's or anybody's."""
        taken = connection.execute(_TAKE, {"this_key": key, "this_owner": subject}).first()
        if taken is not None:
            return TokenOutcome.TAKEN if taken.kind == TOKEN else TokenOutcome.TAKEN_AGAIN
        if connection.execute(_IS_TOKEN, {"this_key": key}).first():
            return TokenOutcome.NOT_YOURS
        return TokenOutcome.ABSENT

    def prune(self, connection: Connection, most: int) -> int:
        """Remove expired rows, `most` at the most; returns how many."""
        return connection.execute(self._prune, {"most": most}).rowcount


def renewed(lease: ColumnElement[int]) -> dict[str, ColumnElement[int]]:
    """Return the new values of a claim whose lease begins anew."""
    kept = _row.expires - _row.lease_ends
    return {"lease_ends": now() + lease, "expires": now() + lease + kept}


def outcome_of(row: Row[*tuple[Any, ...]], values: Values) -> ClaimOutcome:
    """Return the outcome of a claim that a row is in the way of."""
    matches = bytes(row.fingerprint) == values["this_fingerprint"]
    if row.kind == RECORD:
        return Done(matches, bytes(row.data))
    if row.kind != CLAIM:
        return Done(True, b"")  # a token, or no row of the store's: done, with an empty record
    return Running(matches, row.left / 1000) if row.left > 0 else Crashed(matches)
