"""What is asked of the database: functions of a connection, which may be in a transaction.

Every one changes one row under a condition, or none; what it came to is told by the rows that come
back. Errors are SQLAlchemy's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    LargeBinary,
    Row,
    Text,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal,
    null,
    or_,
    select,
    tuple_,
)

from ..base import ClaimOutcome, Entry, Outcome, Renewal, TokenOutcome
from .rows import entry_of, unmarked
from .table import CLAIM, RECORD, TOKEN, TOKEN_AGAIN, is_a, now, table, word

OK, STALE = Outcome.OK, Outcome.STALE

_row = table.c
_is_live = _row.expires > now()
_key: Any = bindparam("this_key", type_=Text())
_owner: Any = bindparam("this_owner", type_=LargeBinary())
_fingerprint: Any = bindparam("this_fingerprint", type_=LargeBinary())
_lease: Any = bindparam("lease", type_=BigInteger())
_keep: Any = bindparam("keep", type_=BigInteger())
_data: Any = bindparam("record", type_=LargeBinary())
_kind: Any = bindparam("this_kind", type_=Text())

NEW_CLAIM = {
    "key": _key,
    "kind": word(CLAIM),
    "owner": _owner,
    "fingerprint": _fingerprint,
    "lease_ends": now() + _lease,
    "expires": now() + _lease + _keep,
    "data": null(),
}
"""A row that claims a key."""

# A claim that was sent twice may arrive after the keeper has raised its lease.
_HAS_LONGER = and_(is_a(CLAIM), _row.owner == _owner, _row.lease_ends > now() + _lease)

CLAIMED_ANEW = {name: value for name, value in NEW_CLAIM.items() if name != "key"} | {
    "lease_ends": case((_HAS_LONGER, _row.lease_ends), else_=now() + _lease),
    "expires": case((_HAS_LONGER, _row.lease_ends), else_=now() + _lease) + _keep,
}
"""What becomes of a row that gives way to a claim: an owner's own never ends earlier by that."""

MAY_CLAIM = or_(~_is_live, and_(is_a(CLAIM), _row.owner == _owner))
"""Whether a row that is there gives way to a claim: it has ended, or is the owner's own."""

IN_THE_WAY = select(
    _row.kind,
    _row.fingerprint,
    (_row.lease_ends - now()).label("left"),
    _row.data,
).where(_row.key == _key, ~MAY_CLAIM)

RENEWED = {
    "lease_ends": now() + _lease,
    "expires": now() + _lease + (_row.expires - _row.lease_ends),
}

_HAS_CLAIM = and_(_row.key == _key, is_a(CLAIM), _row.owner == _owner)
IS_RENEWABLE = and_(_HAS_CLAIM, _row.lease_ends > now())

_RELEASE = delete(table).where(_HAS_CLAIM).returning(_row.key)
_REMOVE = delete(table).where(_row.key == _key)
_EXISTS = select(_row.key).where(_row.key == _key, _is_live)
_TAKE = (
    delete(table)
    .where(
        _row.key == _key,
        is_a(TOKEN, TOKEN_AGAIN),
        or_(_row.owner == b"", _row.owner == _owner),
        _is_live,
    )
    .returning(_row.kind)
)
_IS_TOKEN = _EXISTS.where(is_a(TOKEN, TOKEN_AGAIN))
LOOK_UP = select(_row.kind).where(_row.key == _key, _row.owner == _owner, _is_live)

_some_keys: Any = bindparam("keys", expanding=True, type_=Text())
_PEEK = select(
    _row.key,
    _row.kind,
    _row.owner,
    (_row.lease_ends - now()).label("left"),
    (_row.expires - now()).label("expires_in"),
    func.coalesce(func.length(_row.data), 0).label("size"),
).where(_row.key.in_(_some_keys), _is_live)
_SCAN = (
    select(_row.key)
    .where(_row.key > bindparam("after", type_=Text()))
    .where(_row.key >= bindparam("begin", type_=Text()), _row.key < bindparam("end", type_=Text()))
    .where(_is_live)
    .order_by(_row.key)
    .limit(bindparam("most", type_=BigInteger()))
)
_DISCARD = (
    delete(table)
    .where(tuple_(_row.key, _row.kind, _row.owner).in_(bindparam("seen", expanding=True)))
    .returning(_row.key)
)
_REST = select(_row.key).where(_row.key.in_(_some_keys), _is_live)
_NOTHING = select(*_row).limit(0)

_PER_STATEMENT = 500
"""Keys in one statement: its parameters are numbered, and the numbers end."""

_LAST = "\U0010ffff"


class Statements(ABC):
    """The statements of one dialect.

    Args:
        insert: makes an `INSERT` that knows of conflicts.
    """

    def __init__(self, insert: Callable[..., Any]) -> None:
        self._insert = insert
        self._look_up: Any = LOOK_UP
        self._complete = self._put(
            NEW_CLAIM
            | {"kind": word(RECORD), "data": _data}
            | {"lease_ends": null(), "expires": now() + _keep},
            or_(~_is_live, and_(is_a(CLAIM, RECORD), _row.owner == _owner)),
        )
        self._put_token = self._put(
            {
                "key": _key,
                "kind": _kind,
                "owner": _owner,
                "fingerprint": literal(b"", LargeBinary()),
                "lease_ends": null(),
                "expires": now() + _keep,
                "data": null(),
            },
            None,
        )

    def _put(
        self, values: dict[str, Any], where: Any, replaced: dict[str, Any] | None = None
    ) -> Any:
        replaced = replaced or {name: value for name, value in values.items() if name != "key"}
        put = self._insert(table).values(values)
        put = put.on_conflict_do_update(index_elements=[_row.key], set_=replaced, where=where)
        return put.returning(_row.key)

    def claim(
        self,
        connection: Connection,
        key: str,
        owner: bytes,
        fingerprint: bytes,
        lease: int,
        keep: int,
    ) -> ClaimOutcome | None:
        """Take a key, or say what is there; None where that has changed in between.

        Args:
            connection: outside a transaction.
            key: the store key.
            owner: 16 random bytes.
            fingerprint: 16 bytes.
            lease: milliseconds.
            keep: milliseconds.
        """
        values = {
            "this_key": key,
            "this_owner": owner,
            "this_fingerprint": fingerprint,
            "lease": lease,
            "keep": keep,
        }
        return self._take(connection, values)

    @abstractmethod
    def _take(self, connection: Connection, values: dict[str, Any]) -> ClaimOutcome | None:
        """Claim with the values of the statement's parameters."""

    @abstractmethod
    def renew(self, connection: Connection, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Begin the leases of live claims anew."""

    @abstractmethod
    def prune(self, connection: Connection, most: int) -> int:
        """Remove rows that have expired, `most` at the most; returns how many."""

    @abstractmethod
    def count_all(self, connection: Connection) -> int | None:
        """Return roughly how many rows there are, None for unknown."""

    def complete(
        self,
        connection: Connection,
        key: str,
        owner: bytes,
        fingerprint: bytes,
        record: bytes,
        keep: int,
    ) -> Row[Any] | None:
        """Replace a claim by a record for so many milliseconds, if it is the owner's.

        Returns:
            What was written, None where the key is another owner's.
        """
        values = {
            "this_key": key,
            "this_owner": owner,
            "this_fingerprint": fingerprint,
            "record": record,
            "keep": keep,
        }
        # The connection may be the application's. The table is the one of the claim, whatever
        # schemas it has for its own.
        untranslated = {"schema_translate_map": None}
        return connection.execute(self._complete, values, execution_options=untranslated).first()

    def look_up(self, connection: Connection, key: str, owner: bytes) -> str | None:
        """Return what an owner has at a key: `"claim"`, `"record"`, or None."""
        kind = connection.execute(self._look_up, {"this_key": key, "this_owner": owner}).scalar()
        return kind if kind in (CLAIM, RECORD) else None

    def release(self, connection: Connection, key: str, owner: bytes) -> Outcome:
        """Remove a claim, if it is the owner's."""
        if connection.execute(_RELEASE, {"this_key": key, "this_owner": owner}).first():
            return OK
        return STALE if connection.execute(_EXISTS, {"this_key": key}).first() else OK

    def put_token(
        self, connection: Connection, key: str, subject: bytes, ttl: int, kind: str
    ) -> None:
        """Store a token for so many milliseconds."""
        values = {"this_key": key, "this_owner": subject, "keep": ttl, "this_kind": kind}
        connection.execute(self._put_token, values)

    def take_token(self, connection: Connection, key: str, subject: bytes) -> TokenOutcome:
        """Remove a token, if it is the subject's or anybody's."""
        taken = connection.execute(_TAKE, {"this_key": key, "this_owner": subject}).first()
        if taken is not None:
            return TokenOutcome.TAKEN if taken.kind == TOKEN else TokenOutcome.TAKEN_AGAIN
        if connection.execute(_IS_TOKEN, {"this_key": key}).first():
            return TokenOutcome.NOT_YOURS
        return TokenOutcome.ABSENT

    def peek(self, connection: Connection, keys: Sequence[str]) -> list[Entry | None]:
        """Return what each of some keys holds."""
        entries: dict[str, Entry] = {}
        for some in _in_parts(keys):
            for row in connection.execute(_PEEK, {"keys": some}):
                entries[row.key] = entry_of(row)
        return [entries.get(key) for key in keys]

    def scan(self, connection: Connection, prefix: str, after: str, most: int) -> list[str]:
        """Return the next keys that begin with a prefix, in order."""
        values = {"after": after, "begin": prefix, "end": prefix + _LAST, "most": most}
        return list(connection.execute(_SCAN, values).scalars())

    def remove(self, connection: Connection, key: str) -> None:
        """Remove a key, whatever it holds."""
        connection.execute(_REMOVE, {"this_key": key})

    def discard(self, connection: Connection, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        """Remove keys that still hold what they were seen to hold."""
        left: set[str] = set()
        for some in _in_parts(seen):
            marked = [(key, *unmarked(entry.mark)) for key, entry in some]
            gone = set(connection.execute(_DISCARD, {"seen": marked}).scalars())
            if others := [key for key, _ in some if key not in gone]:
                left.update(connection.execute(_REST, {"keys": others}).scalars())
        return [STALE if key in left else OK for key, _ in seen]

    def ping(self, connection: Connection) -> None:
        """Return if the table is there and has all columns."""
        connection.execute(_NOTHING)


def _in_parts(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[n : n + _PER_STATEMENT] for n in range(0, len(items), _PER_STATEMENT)]
