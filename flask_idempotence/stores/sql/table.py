"""The table: one row a key. Version 1 of the layout, as the `1` in every key says."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement
from sqlalchemy.sql.functions import FunctionElement

NAME = "flask_idempotence"

CLAIM, RECORD, TOKEN, TOKEN_AGAIN = "claim", "record", "token", "token again"
"""The kinds of rows."""

metadata = sa.MetaData()
"""Of this table alone: `create_all` of the application's own metadata does not see it."""

table = sa.Table(
    NAME,
    metadata,
    # Compared byte by byte, so that the keys of one endpoint stand together in the index.
    sa.Column(
        "key", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), primary_key=True
    ),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("owner", sa.LargeBinary, nullable=False),  # of a token: the user it was issued to
    sa.Column("fingerprint", sa.LargeBinary, nullable=False),
    sa.Column("lease_ends", sa.BigInteger),  # milliseconds since 1970; of claims only
    sa.Column("expires", sa.BigInteger, nullable=False, index=True),  # milliseconds since 1970
    sa.Column("data", sa.LargeBinary),  # of records only
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
    """Return whether a row is of one of these kinds."""
    return sa.or_(*(table.c.kind == word(kind) for kind in kinds))


def milliseconds(seconds: float) -> int:
    """Return a duration as the table counts it: 1 at the least."""
    return max(1, round(seconds * 1000))


def create(connection: Connection) -> bool:
    """Create the table, and return whether it was missing."""
    if sa.inspect(connection).has_table(NAME):
        return False
    metadata.create_all(connection)
    return True


def ddl(dialect: Dialect) -> str:
    """Return the statements that create the table."""
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
