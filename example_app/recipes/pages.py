"""The page of the recipes: for each two forms, and what the database says."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from flask import Blueprint, jsonify, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select

from ..answers import wants_page
from .models import MUG, Account, Departure, Message, Order, Parcel, Payment, Price, Stock, Votes
from .sessions import recipe_database

blueprint = Blueprint("pages", __name__)


@dataclass(frozen=True)
class Form:
    """A form, and the same as a line for a shell.

    Args:
        path: under that of the page.
        fields: the names, with what stands in them at first.
        label: of its button.
    """

    path: str
    fields: dict[str, Any]
    label: str

    @property
    def id(self) -> str:
        """What its fields' names begin with on the page."""
        return self.path.replace("/", "-")

    @property
    def url(self) -> str:
        """Where it is sent."""
        return f"{url_for('recipes.pages.index')}/{self.path}"

    @property
    def command(self) -> str:
        """The line for a shell."""
        data = " ".join(f"-d {name}={value}" for name, value in self.fields.items())
        return f"curl {data} {request.host_url.rstrip('/')}{self.url}"


@dataclass(frozen=True)
class Recipe:
    """A technique beside a guard."""

    title: str
    text: str
    technique: Form
    guard: Form


def recipes(version: int) -> list[Recipe]:
    """Return them all, with references that nobody has used.

    Args:
        version: of the price of the mug.
    """
    fresh = uuid4().hex[:8]
    return [
        Recipe(
            "Unique index",
            "Inserts. The second order with the same reference is refused; the guard tells it "
            "the number of the first.",
            Form("unique-index", {"reference": fresh}, "Order"),
            Form("unique-index/guarded", {"reference": fresh}, "Order, guarded by a key"),
        ),
        Recipe(
            "Deduplication table",
            "Messages. What has been handled is written down in the transaction of what handling "
            "it does. The guard keeps that table for you.",
            Form("deduplication-table/mug", {"message": fresh, "pieces": 5}, "Deliver"),
            Form(
                "deduplication-table/mug/guarded",
                {"message": fresh, "pieces": 5},
                "Deliver, guarded by once()",
            ),
        ),
        Recipe(
            "Optimistic lock",
            "Computed updates. Who computed from an old version has to begin again. The guard "
            "knows repeats of one change, and nothing of other changes.",
            Form("optimistic-lock/mug", {"percent": 10, "version": version}, "Raise"),
            Form(
                "optimistic-lock/teapot/guarded",
                {"percent": 10, "change": fresh},
                "Raise, guarded by a key",
            ),
        ),
        Recipe(
            "Pessimistic lock",
            "Computed updates. Everybody waits for their turn, duplicates too. The guard lets "
            "nobody wait, and keeps duplicates out.",
            Form("pessimistic-lock/1", {"amount": 10}, "Withdraw"),
            Form("pessimistic-lock/2/guarded", {"amount": 10}, "Withdraw, guarded by a lock"),
        ),
        Recipe(
            "State machine",
            "Changes of a state. A parcel is shipped if it is packed, and then it is not packed "
            "any more. The guard refuses the same wish for five seconds.",
            Form("state-machine/1", {"status": "shipped"}, "Ship"),
            Form("state-machine/2/guarded", {"status": "shipped"}, "Ship, guarded by a lock"),
        ),
        Recipe(
            "Counter",
            "At most so often: three votes for each voter. The guard: one in a minute.",
            Form("counter", {"voter": "Ada"}, "Vote"),
            Form("counter/guarded", {"voter": "Grace"}, "Vote, guarded by a lock"),
        ),
        Recipe(
            "Payments: lock and unique index",
            "The lock turns duplicates away while the bank is asked; the index holds when the "
            "lock is lost. Or the guard commits the payment and its answer together.",
            Form("payments", {"reference": fresh, "amount": 12}, "Pay"),
            Form(
                "payments/guarded",
                {"reference": f"{fresh}-2", "amount": 12},
                "Pay, guarded within the transaction",
            ),
        ),
    ]


@blueprint.get("")
def index() -> ResponseReturnValue:
    """Show the recipes, or tell a script what is in the database."""
    return page_saying(None) if wants_page() else jsonify(truth())


@blueprint.post("/reset")
def reset() -> ResponseReturnValue:
    """Begin anew. The guards remember what they know: their time ends by itself."""
    recipe_database().reset()
    return redirect(url_for(".index"), HTTPStatus.SEE_OTHER)


def page_saying(notice: str | None) -> str:
    """Return the page, with what there is to say above it."""
    with recipe_database().new_session() as session:
        version = session.scalars(select(Price.version).where(Price.product == MUG)).one()
    return render_template(
        "recipes.html",
        recipes=recipes(version),
        truth=truth(),
        kind=recipe_database().engine.dialect.name,
        notice=notice,
    )


def truth() -> dict[str, Any]:
    """Return what the database says."""
    with recipe_database().new_session() as session:

        def count(table: type) -> int:
            return session.scalar(select(func.count()).select_from(table)) or 0

        def by_name(name: Any, value: Any) -> dict[str, int]:
            return {row[0]: row[1] for row in session.execute(select(name, value))}

        return {
            "orders": count(Order),
            "messages": count(Message),
            "stock": session.scalar(select(Stock.pieces)),
            "prices": by_name(Price.product, Price.cents),
            "balances": list(session.scalars(select(Account.balance).order_by(Account.number))),
            "parcels": list(session.scalars(select(Parcel.status).order_by(Parcel.number))),
            "departures": count(Departure),
            "votes": by_name(Votes.voter, Votes.used),
            "payments": count(Payment),
        }
