"""The table: one row a key. Version 1 of the layout, as the `1` in every key says."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    func,
    inspect,
    literal_column,
    or_,
    select,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement
from sqlalchemy.sql.functions import FunctionElement

NAME = "flask_idempotence"

CLAIM, RECORD, TOKEN, TOKEN_AGAIN = "claim", "record", "token", "token again"
"""The kinds of rows."""

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
"""Owners stay in completed rows: an owner that lost the answer to its COMMIT can look it up."""

_MOST_COUNTED = 100_000


class now(FunctionElement[int]):  # noqa: N801 - a function of the database
    """The database's clock as the statement began, in milliseconds since 1970.

    Each dialect compiles it.
    """

    type = BigInteger()
    inherit_cache = True


def word(constant: str) -> ColumnElement[str]:
    """Return a constant as SQL text, which saves a parameter."""
    return literal_column(f"'{constant}'", Text())


def is_a(*kinds: str) -> ColumnElement[bool]:
    """Return whether a row is of one of these kinds."""
    return or_(*(table.c.kind == word(kind) for kind in kinds))


def milliseconds(seconds: float) -> int:
    """Return a duration as the table counts it: 1 at the least."""
    return max(1, round(seconds * 1000))


def create(connection: Connection) -> bool:
    """Create the table, and return whether it was missing."""
    if inspect(connection).has_table(NAME):
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
    inspector = inspect(connection)
    if not inspector.has_table(NAME):
        return (NAME,)
    present = {column["name"] for column in inspector.get_columns(NAME)}
    return tuple(column.name for column in table.columns if column.name not in present)


def count_expired(connection: Connection) -> int:
    """Return how many expired rows there are, up to 100,000."""
    some = select(table.c.key).where(table.c.expires <= now()).limit(_MOST_COUNTED).subquery()
    return connection.execute(select(func.count()).select_from(some)).scalar_one()
