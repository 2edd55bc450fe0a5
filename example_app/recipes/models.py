"""The tables of the recipes, and their initial rows.

The indexes and versions that the techniques need are declared here. The guarded routes do not use
them: they leave the column empty, or bypass the version.
"""

from __future__ import annotations

from sqlalchemy import String
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

MUG = "mug"
OPENING_BALANCE = 100

# MySQL's default collations ignore case, and would treat two references as one.
Name = String(64).with_variant(mysql.VARCHAR(64, collation="utf8mb4_bin"), "mysql", "mariadb")


class Base(DeclarativeBase):
    """Base of the tables. Their names begin with `recipe_`: the database may have other tables."""


class Order(Base):
    """An order. References are unique; any number of orders may have none."""

    __tablename__ = "recipe_orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    reference: Mapped[str | None] = mapped_column(Name, unique=True)


class PlainOrder(Base):
    """An order in a table without a unique index."""

    __tablename__ = "recipe_plain_orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    reference: Mapped[str] = mapped_column(Name, index=True)


class Message(Base):
    """A message that has been handled."""

    __tablename__ = "recipe_messages"
    id: Mapped[str] = mapped_column(Name, primary_key=True)


class Stock(Base):
    """The pieces in stock of a product."""

    __tablename__ = "recipe_stock"
    product: Mapped[str] = mapped_column(Name, primary_key=True)
    pieces: Mapped[int]


class Price(Base):
    """A price in cents with a version: SQLAlchemy updates only the version that was read."""

    __tablename__ = "recipe_prices"
    product: Mapped[str] = mapped_column(Name, primary_key=True)
    cents: Mapped[int]
    version: Mapped[int] = mapped_column()

    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 (SQLAlchemy's own way)


class Account(Base):
    """A balance in whole euros."""

    __tablename__ = "recipe_accounts"
    number: Mapped[int] = mapped_column(primary_key=True)
    balance: Mapped[int]


class Parcel(Base):
    """A parcel, first packed, then shipped or cancelled."""

    __tablename__ = "recipe_parcels"
    number: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(16))


class Departure(Base):
    """A parcel's departure. No index refuses a second one."""

    __tablename__ = "recipe_departures"
    number: Mapped[int] = mapped_column(primary_key=True)
    parcel: Mapped[int]
    status: Mapped[str] = mapped_column(String(16))


class Votes(Base):
    """The number of votes of one voter."""

    __tablename__ = "recipe_votes"
    voter: Mapped[str] = mapped_column(Name, primary_key=True)
    used: Mapped[int]


class Payment(Base):
    """A payment with a unique reference."""

    __tablename__ = "recipe_payments"
    number: Mapped[int] = mapped_column(primary_key=True)
    reference: Mapped[str] = mapped_column(Name, unique=True)
    amount: Mapped[int]


def first_rows() -> list[Base]:
    """Return the initial rows: one for each technique, and one for its guard."""
    return [
        Stock(product=MUG, pieces=0),
        Price(product=MUG, cents=1000),
        Price(product="teapot", cents=1000),
        *(Account(number=number, balance=OPENING_BALANCE) for number in (1, 2)),
        *(Parcel(number=number, status="packed") for number in (1, 2)),
    ]
