"""Listing and removing keys by hand: the same statements on every database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from ..base import Entry, Outcome
from .table import CLAIM, KEY, TOKEN, TOKEN_AGAIN, now, table

T = TypeVar("T")

_row = table.c
_is_live = _row.expires > now()
_most = sa.bindparam("most", type_=sa.BigInteger())
_keys = sa.bindparam("keys", expanding=True, type_=KEY)
_PEEK = sa.select(
    _row.key,
    _row.kind,
    _row.owner,
    (_row.lease_ends - now()).label("left"),
    (_row.expires - now()).label("expires_in"),
    sa.func.coalesce(sa.func.length(_row.data), 0).label("size"),
).where(_row.key.in_(_keys), _is_live)
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
_doomed = (
    sa.select(_row.key)
    .where(_row.expires <= now())
    .order_by(_row.expires)
    .limit(_most)
    .with_for_update(skip_locked=True)
    .cte("doomed")
)
_PRUNE = (
    sa.delete(table)
    .where(_row.key.in_(sa.select(_doomed.c.key)), _row.expires <= now())
    .returning(_row.key)
)
REMOVE = sa.delete(table).where(_row.key == sa.bindparam("this_key", type_=KEY))
"""A row of any kind."""

_KEY_KIND_OWNER = sa.tuple_(_row.key, _row.kind, _row.owner)
# The keys alone find the rows by the index, on every database.
_DISCARD = (
    sa.delete(table)
    .where(_row.key.in_(_keys), _KEY_KIND_OWNER.in_(sa.bindparam("seen", expanding=True)))
    .returning(_row.key)
)

_PER_STATEMENT = 500
"""Keys in one statement: the number of its parameters is limited."""

_LAST = "\U0010ffff"


def peek(connection: Connection, keys: Sequence[str]) -> list[Entry | None]:
    """Return the entries of some keys."""
    entries: dict[str, Entry] = {}
    for some in _in_parts(keys):
        for row in connection.execute(_PEEK, {"keys": some}):
            entries[row.key] = _entry_of(row)
    return [entries.get(key) for key in keys]


def scan(connection: Connection, prefix: str, after: str, most: int) -> Sequence[str]:
    """Return the next keys that begin with a prefix, in order."""
    values = {"after": after, "begin": prefix, "end": prefix + _LAST, "most": most}
    return connection.execute(_SCAN, values).scalars().all()


def remove(connection: Connection, key: str) -> None:
    """Remove a key of any kind."""
    connection.execute(REMOVE, {"this_key": key})


def discard(connection: Connection, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
    """Remove keys whose entries are still the same."""
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


def _entry_of(row: sa.Row[*tuple[Any, ...]]) -> Entry:
    kind = TOKEN if row.kind == TOKEN_AGAIN else row.kind
    mark = row.kind.encode() + b"\0" + bytes(row.owner)
    lease = max(0, row.left) / 1000 if kind == CLAIM else None
    return Entry(kind, row.expires_in / 1000, row.size, lease, mark)


def kind_and_owner(mark: bytes) -> tuple[str, bytes]:
    """Return the kind and the owner of the entry with a mark."""
    kind, _, owner = mark.partition(b"\0")
    return kind.decode(), owner


def _in_parts(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[n : n + _PER_STATEMENT] for n in range(0, len(items), _PER_STATEMENT)]
