"""The table: one row a key. Version 1 of the layout, as the `1` in every key says."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    literal_column,
    or_,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

NAME = "flask_idempotence"

CLAIM, RECORD, TOKEN, TOKEN_AGAIN = "claim", "record", "token", "token again"
"""What a row may be."""

metadata = MetaData()
"""Of this table alone: `create_all` of the application's own metadata does not see it."""

table = Table(
    NAME,
    metadata,
    # Compared byte by byte, so that the keys of one endpoint stand together in the index.
    Column("key", Text().with_variant(Text(collation="C"), "postgresql"), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("owner", LargeBinary, nullable=False),  # of a token: the user it was issued to
    Column("fingerprint", LargeBinary, nullable=False),
    Column("lease_ends", BigInteger),  # milliseconds since 1970; of claims only
    Column("expires", BigInteger, nullable=False, index=True),  # milliseconds since 1970
    Column("data", LargeBinary),  # of records only
)
"""Owners stay in completed rows: whoever lost the answer to a commit finds out whether it was he
who completed."""


class now(FunctionElement[int]):  # noqa: N801 - a function of the database
    """The database's clock as the statement began, in milliseconds since 1970."""

    type = BigInteger()
    inherit_cache = True


@compiles(now, "postgresql")
def _now_on_postgresql(*_: Any, **__: Any) -> str:
    # Not now(), which stands still while a transaction lasts, and not clock_timestamp(), which
    # may differ from row to row and cannot be looked up in an index.
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)"


@compiles(now, "sqlite")
def _now_on_sqlite(*_: Any, **__: Any) -> str:
    # unixepoch('subsec') would need 3.42. Of a Julian day, a double knows the millisecond.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


def word(constant: str) -> ColumnElement[str]:
    """Return one of our own words as it stands in a statement: no value that has to be sent."""
    return literal_column(f"'{constant}'", Text())


def is_a(*kinds: str) -> ColumnElement[bool]:
    """Return whether a row is of one of these kinds."""
    return or_(*(table.c.kind == word(kind) for kind in kinds))


def milliseconds(seconds: float) -> int:
    """Return a length of time as the table counts it, which is never nothing."""
    return max(1, round(seconds * 1000))
