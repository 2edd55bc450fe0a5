"""The table, and the SQL that the databases share: values, conditions and statements.

One row a key. Parameters are `this_key`,
`this_owner` (of a token: its subject), `this_fingerprint`, `this_kind`, `record`, and in
milliseconds `lease` and `life`. Each statement changes one row under a condition, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.functions import FunctionElement

T = TypeVar("T")
Columns = dict[str, sa.ColumnElement[Any]]

NAME = "flask_idempotence"

KEY_BYTES = 767  # bytes of a key on MySQL, which every row format of InnoDB can index
MYSQL = ("mysql", "mariadb")  # SQLAlchemy's names of their dialects
CLAIM, RECORD, TOKEN = "claim", "record", "token"  # the kinds of rows


class _KeyBytes(sa.TypeDecorator[str]):
    """A key on MySQL: collations compare without regard to case, accents or trailing spaces."""

    impl = mysql.VARBINARY(KEY_BYTES)
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> bytes | None:
        return None if value is None else value.encode()

    def process_result_value(self, value: bytes | None, _dialect: Dialect) -> str | None:
        return None if value is None else bytes(value).decode()


KEY = sa.Text().with_variant(_KeyBytes(), *MYSQL)  # the type of keys as parameters

_HASH = sa.LargeBinary().with_variant(mysql.VARBINARY(255), *MYSQL)
_RECORD = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)
_INNODB = {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_bin"}
_OPTIONS: dict[str, Any] = {
    f"{name}_{option}": value for name in MYSQL for option, value in _INNODB.items()
}

metadata = sa.MetaData()
"""Of this table alone: `create_all` of the application's own metadata does not see it."""

table = sa.Table(
    NAME,
    metadata,
    # Compared byte by byte, so that the keys of one endpoint are adjacent in the index.
    sa.Column("key", KEY.with_variant(sa.Text(collation="C"), "postgresql"), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("owner", _HASH, nullable=False),  # a token's is the user it was issued to
    sa.Column("fingerprint", _HASH, nullable=False),
    sa.Column("lease_ends", sa.BigInteger),  # milliseconds since 1970; only claims have it
    sa.Column("expires", sa.BigInteger, nullable=False, index=True),  # milliseconds since 1970
    sa.Column("data", _RECORD),  # only records have it
    **_OPTIONS,
)
"""Owners stay in completed rows: an owner that lost the answer to its COMMIT can look it up."""


class now(FunctionElement[int]):  # noqa: N801 - a function of the database
    """The database's clock as the statement began, in milliseconds since 1970.

    Each dialect compiles it.
    """

    type = sa.BigInteger()
    inherit_cache = True


def word(constant: str) -> sa.ColumnElement[str]:
    """Return a constant as SQL text, which saves a parameter."""
    return sa.literal_column(f"'{constant}'", sa.Text())


def is_a(*kinds: str) -> sa.ColumnElement[bool]:
    return sa.or_(*(table.c.kind == word(kind) for kind in kinds))


_row = table.c
_is_live = _row.expires > now()
_key = sa.bindparam("this_key", type_=KEY)
_owner = sa.bindparam("this_owner", type_=sa.LargeBinary())
_fingerprint = sa.bindparam("this_fingerprint", type_=sa.LargeBinary())
LIFE = sa.bindparam("life", type_=sa.BigInteger())
LEASE = sa.bindparam("lease", type_=sa.BigInteger())

NEW_CLAIM: Columns = {
    "key": _key,
    "kind": word(CLAIM),
    "owner": _owner,
    "fingerprint": _fingerprint,
    "lease_ends": now() + LEASE,
    "expires": now() + LEASE + LIFE,
    "data": sa.null(),
}

# Whether an existing row gives way to a claim: it has ended, or is the owner's own.
MAY_CLAIM = sa.or_(~_is_live, sa.and_(is_a(CLAIM), _row.owner == _owner))

_left = (sa.func.coalesce(_row.lease_ends, _row.expires) - now()).label("left")
IN_THE_WAY = sa.select(_row.kind, _row.fingerprint, _left, _row.data, _row.owner).where(
    _row.key == _key, ~MAY_CLAIM
)

IS_OWN = sa.and_(_row.key == _key, _row.owner == _owner)
IS_RENEWABLE = sa.and_(is_a(CLAIM), _row.lease_ends > now())

COMPLETED: Columns = NEW_CLAIM | {
    "kind": word(RECORD),
    "lease_ends": sa.null(),
    "expires": now() + LIFE,
    "data": sa.bindparam("record", type_=sa.LargeBinary()),
}
MAY_COMPLETE = sa.or_(~_is_live, sa.and_(is_a(CLAIM, RECORD), _row.owner == _owner))
NEW_TOKEN: Columns = NEW_CLAIM | {
    "kind": sa.literal(TOKEN),
    "fingerprint": sa.literal(b"", sa.LargeBinary()),
    "lease_ends": sa.null(),
    "expires": now() + LIFE,
}

RELEASE = sa.delete(table).where(IS_OWN, is_a(CLAIM))
EXISTS = sa.select(_row.key).where(_row.key == _key, _is_live)
IS_TOKEN = EXISTS.where(is_a(TOKEN))
_IS_FOR_SUBJECT = sa.or_(_row.owner == b"", _row.owner == _owner)
TAKE = sa.delete(table).where(_row.key == _key, _IS_FOR_SUBJECT, _is_live, is_a(TOKEN))

# Waits for a transaction that has locked the row: for its COMMIT, or its end.
LOOK_UP = sa.select(_row.kind).where(IS_OWN, _is_live, is_a(CLAIM, RECORD)).with_for_update()

_most = sa.bindparam("most", type_=sa.BigInteger())
KEYS = sa.bindparam("keys", expanding=True, type_=KEY)
PEEK = sa.select(
    _row.key,
    _row.kind,
    _row.owner,
    (_row.lease_ends - now()).label("left"),
    (_row.expires - now()).label("expires_in"),
    sa.func.coalesce(sa.func.length(_row.data), 0).label("size"),
).where(_row.key.in_(KEYS), _is_live)
_after, _begin, _end = (sa.bindparam(name, type_=KEY) for name in ("after", "begin", "end"))
SCAN = (
    sa.select(_row.key)
    .where(_row.key > _after, _row.key >= _begin, _row.key < _end, _is_live)
    .order_by(_row.key)
    .limit(_most)
)
LAST = "\U0010ffff"  # behind a prefix, the end of its keys

# Rows that another transaction has locked are skipped: they do not stay expired.
DOOMED = (
    sa.select(_row.key)
    .where(~_is_live)
    .order_by(_row.expires)
    .limit(_most)
    .with_for_update(skip_locked=True)
)
PRUNE = (
    sa.delete(table)
    .where(_row.key.in_(sa.select(DOOMED.cte("doomed").c.key)), ~_is_live)
    .returning(_row.key)
)
REMOVE = sa.delete(table).where(_row.key == _key)  # a row of any kind

_seen = sa.tuple_(_row.key, _row.kind, _row.owner).in_(sa.bindparam("seen", expanding=True))
# Their keys alone find the rows by the index, on every database.
DISCARD = sa.delete(table).where(_row.key.in_(KEYS), _seen).returning(_row.key)

_PER_STATEMENT = 500  # keys in one statement: the number of its parameters is limited


_claims = sa.tuple_(_row.key, _row.owner).in_(sa.bindparam("claims", expanding=True))
TO_RENEW = sa.and_(_row.key.in_(KEYS), _claims, IS_RENEWABLE)
# MySQL assigns values from left to right: the first one sees the old value of the second.
RENEW = sa.update(table).ordered_values(
    (_row.expires, now() + LEASE + _row.expires - _row.lease_ends),
    (_row.lease_ends, now() + LEASE),
)
RENEWABLE = sa.select(_row.key, _row.owner).where(_row.key.in_(KEYS), IS_RENEWABLE)


def in_parts(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[n : n + _PER_STATEMENT] for n in range(0, len(items), _PER_STATEMENT)]
