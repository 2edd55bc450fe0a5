"""The table: one row a key. Version 1 of the layout, as the `1` in every key says."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement
from sqlalchemy.sql.functions import FunctionElement

NAME = "flask_idempotence"

KEY_BYTES = 767
"""Bytes of a key on MySQL, which every row format of InnoDB can index."""

_MYSQL = ("mysql", "mariadb")

CLAIM, RECORD, TOKEN, TOKEN_AGAIN = "claim", "record", "token", "token again"
"""The kinds of rows."""


class _KeyBytes(sa.TypeDecorator[str]):
    """A key on MySQL: collations compare without regard to case, accents or trailing spaces."""

    impl = mysql.VARBINARY(KEY_BYTES)
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> bytes | None:
        return None if value is None else value.encode()

    def process_result_value(self, value: bytes | None, _dialect: Dialect) -> str | None:
        return None if value is None else bytes(value).decode()


KEY = sa.Text().with_variant(_KeyBytes(), *_MYSQL)
"""The type of keys as parameters."""

_HASH = sa.LargeBinary().with_variant(mysql.VARBINARY(255), *_MYSQL)
_RECORD = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *_MYSQL)
_INNODB = {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_bin"}
_OPTIONS: dict[str, Any] = {
    f"{name}_{option}": value for name in _MYSQL for option, value in _INNODB.items()
}

metadata = sa.MetaData()
"""Of this table alone: `create_all` of the application's own metadata does not see it."""

table = sa.Table(
    NAME,
    metadata,
    # Compared byte by byte, so that the keys of one endpoint are adjacent in the index.
    sa.Column("key", KEY.with_variant(sa.Text(collation="C"), "postgresql"), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("owner", _HASH, nullable=False),  # of a token: the user it was issued to
    sa.Column("fingerprint", _HASH, nullable=False),
    sa.Column("lease_ends", sa.BigInteger),  # milliseconds since 1970; of claims only
    sa.Column("expires", sa.BigInteger, nullable=False, index=True),  # milliseconds since 1970
    sa.Column("data", _RECORD),  # of records only
    **_OPTIONS,
)
"""Owners stay in completed rows: an owner that lost the answer to its COMMIT can look it up."""

_MOST_COUNTED = 100_000


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


def milliseconds(seconds: float) -> int:
    """Return a duration as the table counts it: 1 at the least."""
    return max(1, round(seconds * 1000))


def create(connection: Connection) -> bool:
    if sa.inspect(connection).has_table(NAME):
        return False
    metadata.create_all(connection)
    return True


def ddl(dialect: Dialect) -> str:
    statements: list[ExecutableDDLElement] = [CreateTable(table)]
    statements += map(CreateIndex, table.indexes)
    return "\n".join(f"{str(each.compile(dialect=dialect)).strip()};" for each in statements)


def missing_parts(connection: Connection) -> tuple[str, ...]:
    """Return the name of the table, or of its columns, where they are missing."""
    inspector = sa.inspect(connection)
    if not inspector.has_table(NAME):
        return (NAME,)
    present = {column["name"] for column in inspector.get_columns(NAME)}
    return tuple(column.name for column in table.columns if column.name not in present)


def count_expired(connection: Connection) -> int:
    """Return how many expired rows there are, up to 100,000."""
    some = sa.select(table.c.key).where(table.c.expires <= now()).limit(_MOST_COUNTED).subquery()
    return connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one()
