"""The tables of the recipes, and what is in them at first.

Where a technique needs a rule of the database (an index, a version), it stands here. The routes
behind the guards do without: they leave the column empty, or go around the version.
"""

from __future__ import annotations

from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

MUG = "mug"
OPENING_BALANCE = 100


class Base(DeclarativeBase):
    """All tables of the recipes begin with `recipe_`: the database may hold others."""


class Order(Base):
    """An order; no two have the same reference, any number have none."""

    __tablename__ = "recipe_orders"
    number: Mapped[int] = mapped_column(primary_key=True)
    reference: Mapped[str | None] = mapped_column(String(64), unique=True)


class Message(Base):
    """A message that has been handled."""

    __tablename__ = "recipe_messages"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)


class Stock(Base):
    """How much there is of a product."""

    __tablename__ = "recipe_stock"
    product: Mapped[str] = mapped_column(String(64), primary_key=True)
    pieces: Mapped[int]


class Price(Base):
    """A price in cents; SQLAlchemy counts its versions, and updates only the one that was read."""

    __tablename__ = "recipe_prices"
    product: Mapped[str] = mapped_column(String(64), primary_key=True)
    cents: Mapped[int]
    version: Mapped[int] = mapped_column()

    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 (SQLAlchemy's own way)


class Account(Base):
    """Somebody's money, in whole euros."""

    __tablename__ = "recipe_accounts"
    number: Mapped[int] = mapped_column(primary_key=True)
    balance: Mapped[int]


class Parcel(Base):
    """A parcel: packed, then either shipped or cancelled."""

    __tablename__ = "recipe_parcels"
    number: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(16))


class Departure(Base):
    """What has been done with a parcel; nothing here refuses a second one."""

    __tablename__ = "recipe_departures"
    number: Mapped[int] = mapped_column(primary_key=True)
    parcel: Mapped[int]
    status: Mapped[str] = mapped_column(String(16))


class Votes(Base):
    """How often somebody has voted."""

    __tablename__ = "recipe_votes"
    voter: Mapped[str] = mapped_column(String(64), primary_key=True)
    used: Mapped[int]


class Payment(Base):
    """A payment; no two have the same reference."""

    __tablename__ = "recipe_payments"
    number: Mapped[int] = mapped_column(primary_key=True)
    reference: Mapped[str] = mapped_column(String(64), unique=True)
    amount: Mapped[int]


def first_rows() -> list[Base]:
    """Return what there is before anything has happened: one for each technique and its guard."""
    return [
        Stock(product=MUG, pieces=0),
        Price(product=MUG, cents=1000),
        Price(product="teapot", cents=1000),
        *(Account(number=number, balance=OPENING_BALANCE) for number in (1, 2)),
        *(Parcel(number=number, status="packed") for number in (1, 2)),
    ]
