"""Creating the table, and telling whether it is the one that is needed."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, func, inspect, select
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from .table import NAME, metadata, now, table

MANY = 100_000
"""Expired rows are counted so far and no farther."""


def what_is_missing(connection: Connection) -> tuple[str, ...]:
    """Return the names of what is not there: the table, or columns of it."""
    look = inspect(connection)
    if not look.has_table(NAME):
        return (NAME,)
    there = {each["name"] for each in look.get_columns(NAME)}
    return tuple(each.name for each in table.columns if each.name not in there)


def create(connection: Connection) -> bool:
    """Create the table, and return whether it was missing."""
    if inspect(connection).has_table(NAME):
        return False
    metadata.create_all(connection)
    return True


def ddl(dialect: Dialect) -> str:
    """Return the statements that create the table."""
    statements: list[Any] = [CreateTable(table), *(CreateIndex(index) for index in table.indexes)]
    return "\n".join(f"{str(each.compile(dialect=dialect)).strip()};" for each in statements)


def count_expired(connection: Connection) -> int:
    """Return how many rows have expired, and are still there."""
    some = select(table.c.key).where(table.c.expires <= now()).limit(MANY).subquery()
    return connection.execute(select(func.count()).select_from(some)).scalar_one()
