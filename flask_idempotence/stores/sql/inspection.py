"""Listing and removing keys by hand: the same statements on every database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Connection,
    Row,
    Text,
    bindparam,
    delete,
    func,
    select,
    tuple_,
)

from ..base import Entry, Outcome
from .table import CLAIM, TOKEN, TOKEN_AGAIN, now, table

T = TypeVar("T")

_row = table.c
_is_live = _row.expires > now()
_keys = bindparam("keys", expanding=True, type_=Text())
_PEEK = select(
    _row.key,
    _row.kind,
    _row.owner,
    (_row.lease_ends - now()).label("left"),
    (_row.expires - now()).label("expires_in"),
    func.coalesce(func.length(_row.data), 0).label("size"),
).where(_row.key.in_(_keys), _is_live)
_LEFT = select(_row.key).where(_row.key.in_(_keys), _is_live)
_SCAN = (
    select(_row.key)
    .where(_row.key > bindparam("after", type_=Text()))
    .where(_row.key >= bindparam("begin", type_=Text()), _row.key < bindparam("end", type_=Text()))
    .where(_is_live)
    .order_by(_row.key)
    .limit(bindparam("most", type_=BigInteger()))
)
_REMOVE = delete(table).where(_row.key == bindparam("this_key", type_=Text()))
_KEY_KIND_OWNER = tuple_(_row.key, _row.kind, _row.owner)
_DISCARD = delete(table).where(_KEY_KIND_OWNER.in_(bindparam("seen", expanding=True)))

_PER_STATEMENT = 500
"""Keys in one statement: the number of its parameters is limited."""

_LAST = "\U0010ffff"


def peek(connection: Connection, keys: Sequence[str]) -> list[Entry | None]:
    """Return what each of some keys holds."""
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
    """Remove a key, whatever it holds."""
    connection.execute(_REMOVE, {"this_key": key})


def discard(connection: Connection, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
    """Remove keys that still hold what they were seen to hold."""
    left: set[str] = set()
    for some in _in_parts(seen):
        connection.execute(
            _DISCARD, {"seen": [(key, *_kind_and_owner(entry.mark)) for key, entry in some]}
        )
        left.update(connection.execute(_LEFT, {"keys": [key for key, _ in some]}).scalars())
    return [Outcome.STALE if key in left else Outcome.OK for key, _ in seen]


def ping(connection: Connection) -> None:
    """Return if the table is there and has all columns."""
    connection.execute(select(*_row).limit(0))


def _entry_of(row: Row[*tuple[Any, ...]]) -> Entry:
    kind = TOKEN if row.kind == TOKEN_AGAIN else row.kind
    mark = row.kind.encode() + b"\0" + bytes(row.owner)
    lease = max(0, row.left) / 1000 if kind == CLAIM else None
    return Entry(kind, row.expires_in / 1000, row.size, lease, mark)


def _kind_and_owner(mark: bytes) -> tuple[str, bytes]:
    kind, _, owner = mark.partition(b"\0")
    return kind.decode(), owner


def _in_parts(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[n : n + _PER_STATEMENT] for n in range(0, len(items), _PER_STATEMENT)]
