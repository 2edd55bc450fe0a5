"""SQL that the databases share: values, conditions and statements; the commands' work by them.

Parameters are `this_key`, `this_owner` (of a token: its subject), `this_fingerprint`, `this_kind`,
`record`, and in milliseconds `lease` and `keep`. Each statement changes one row under a condition,
or none; the rows that come back show which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from ..base import Entry, Outcome
from .table import CLAIM, KEY, RECORD, TOKEN, TOKEN_AGAIN, is_a, now, table, word

T = TypeVar("T")
Columns = dict[str, sa.ColumnElement[Any]]

_row = table.c
_is_live = _row.expires > now()
_key = sa.bindparam("this_key", type_=KEY)
_owner = sa.bindparam("this_owner", type_=sa.LargeBinary())
_fingerprint = sa.bindparam("this_fingerprint", type_=sa.LargeBinary())
KEEP = sa.bindparam("keep", type_=sa.BigInteger())
LEASE = sa.bindparam("lease", type_=sa.BigInteger())

NEW_CLAIM: Columns = {
    "key": _key,
    "kind": word(CLAIM),
    "owner": _owner,
    "fingerprint": _fingerprint,
    "lease_ends": now() + LEASE,
    "expires": now() + LEASE + KEEP,
    "data": sa.null(),
}
"""A row that claims a key."""

MAY_CLAIM = sa.or_(~_is_live, sa.and_(is_a(CLAIM), _row.owner == _owner))
"""Whether an existing row gives way to a claim: it has ended, or is the owner's own."""

_left = (_row.lease_ends - now()).label("left")
IN_THE_WAY = sa.select(_row.kind, _row.fingerprint, _left, _row.data).where(
    _row.key == _key, ~MAY_CLAIM
)

IS_OWN = sa.and_(_row.key == _key, _row.owner == _owner)
IS_RENEWABLE = sa.and_(is_a(CLAIM), _row.lease_ends > now())

COMPLETED: Columns = NEW_CLAIM | {
    "kind": word(RECORD),
    "lease_ends": sa.null(),
    "expires": now() + KEEP,
    "data": sa.bindparam("record", type_=sa.LargeBinary()),
}
MAY_COMPLETE = sa.or_(~_is_live, sa.and_(is_a(CLAIM, RECORD), _row.owner == _owner))
NEW_TOKEN: Columns = NEW_CLAIM | {
    "kind": sa.bindparam("this_kind", type_=sa.Text()),
    "fingerprint": sa.literal(b"", sa.LargeBinary()),
    "lease_ends": sa.null(),
    "expires": now() + KEEP,
}

RELEASE = sa.delete(table).where(IS_OWN, is_a(CLAIM))
EXISTS = sa.select(_row.key).where(_row.key == _key, _is_live)
IS_TOKEN = EXISTS.where(is_a(TOKEN, TOKEN_AGAIN))
_IS_FOR_SUBJECT = sa.or_(_row.owner == b"", _row.owner == _owner)
MAY_TAKE = sa.and_(_row.key == _key, _IS_FOR_SUBJECT, _is_live)
TAKE = sa.delete(table).where(MAY_TAKE, is_a(TOKEN, TOKEN_AGAIN)).returning(_row.kind)

# Waits for a transaction that has locked the row: for its COMMIT, or its end.
LOOK_UP = sa.select(_row.kind).where(IS_OWN, _is_live).with_for_update()

_most = sa.bindparam("most", type_=sa.BigInteger())
KEYS = sa.bindparam("keys", expanding=True, type_=KEY)
_PEEK = sa.select(
    _row.key,
    _row.kind,
    _row.owner,
    (_row.lease_ends - now()).label("left"),
    (_row.expires - now()).label("expires_in"),
    sa.func.coalesce(sa.func.length(_row.data), 0).label("size"),
).where(_row.key.in_(KEYS), _is_live)
_SCAN = (
    sa.select(_row.key)
    .where(_row.key > sa.bindparam("after", type_=KEY))
    .where(
        _row.key >= sa.bindparam("begin", type_=KEY),
        _row.key < sa.bindparam("end", type_=KEY),
    )
    .where(_is_live)
    .order_by(_row.key)
    .limit(_most)
)
# Rows that another transaction has locked are skipped: they do not stay expired.
DOOMED = (
    sa.select(_row.key)
    .where(_row.expires <= now())
    .order_by(_row.expires)
    .limit(_most)
    .with_for_update(skip_locked=True)
)
_PRUNE = (
    sa.delete(table)
    .where(_row.key.in_(sa.select(DOOMED.cte("doomed").c.key)), _row.expires <= now())
    .returning(_row.key)
)
REMOVE = sa.delete(table).where(_row.key == _key)
"""A row of any kind."""

_KEY_KIND_OWNER = sa.tuple_(_row.key, _row.kind, _row.owner)
# The keys alone find the rows by the index, on every database.
_DISCARD = (
    sa.delete(table)
    .where(_row.key.in_(KEYS), _KEY_KIND_OWNER.in_(sa.bindparam("seen", expanding=True)))
    .returning(_row.key)
)

_PER_STATEMENT = 500
"""Keys in one statement: the number of its parameters is limited."""

_LAST = "\U0010ffff"


def renewed(lease: sa.ColumnElement[int]) -> dict[str, sa.ColumnElement[int]]:
    """Return the new values of a claim whose lease restarts."""
    kept = _row.expires - _row.lease_ends
    return {"lease_ends": now() + lease, "expires": now() + lease + kept}


def peek(connection: Connection, keys: Sequence[str]) -> list[Entry | None]:
    entries: dict[str, Entry] = {}
    for some in _in_parts(keys):
        for row in connection.execute(_PEEK, {"keys": some}):
            kind = TOKEN if row.kind == TOKEN_AGAIN else row.kind
            lease = max(0, row.left) / 1000 if kind == CLAIM else None
            mark = row.kind.encode() + b"\0" + bytes(row.owner)
            entries[row.key] = Entry(kind, row.expires_in / 1000, row.size, lease, mark)
    return [entries.get(key) for key in keys]


def scan(connection: Connection, prefix: str, after: str, most: int) -> Sequence[str]:
    """Return the next keys that begin with a prefix, in order."""
    values = {"after": after, "begin": prefix, "end": prefix + _LAST, "most": most}
    return connection.execute(_SCAN, values).scalars().all()


def remove(connection: Connection, key: str) -> None:
    connection.execute(REMOVE, {"this_key": key})


def discard(connection: Connection, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
    removed: set[str] = set()
    for some in _in_parts(seen):
        rows = [(key, *kind_and_owner(entry.mark)) for key, entry in some]
        keys = [key for key, _ in some]
        removed.update(connection.execute(_DISCARD, {"keys": keys, "seen": rows}).scalars())
    return [Outcome.OK if key in removed else Outcome.STALE for key, _ in seen]


def prune(connection: Connection, most: int) -> int:
    """Remove expired rows, `most` at the most; returns how many."""
    return len(connection.execute(_PRUNE, {"most": most}).all())


def ping(connection: Connection) -> None:
    """Return if the table is there and has all columns."""
    connection.execute(sa.select(*_row).limit(0))


def kind_and_owner(mark: bytes) -> tuple[str, bytes]:
    kind, _, owner = mark.partition(b"\0")
    return kind.decode(), owner


def _in_parts(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[n : n + _PER_STATEMENT] for n in range(0, len(items), _PER_STATEMENT)]
