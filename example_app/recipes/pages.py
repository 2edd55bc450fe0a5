"""The page of the recipes: two forms for each, and the contents of the database."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from flask import Blueprint, jsonify, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select

from ..answers import wants_page
from .models import (
    MUG,
    Account,
    Departure,
    Message,
    Order,
    Parcel,
    Payment,
    PlainOrder,
    Price,
    Stock,
    Votes,
)
from .sessions import recipe_database

blueprint = Blueprint("pages", __name__)


@dataclass(frozen=True)
class Form:
    """A form, and the shell command that sends the same.

    Args:
        path: relative to the page.
        fields: the names, with their first values.
        label: the text of its button.
    """

    path: str
    fields: dict[str, Any]
    label: str

    @property
    def id(self) -> str:
        """The prefix of its fields' ids on the page."""
        return self.path.replace("/", "-")

    @property
    def url(self) -> str:
        """The URL that it is sent to."""
        return f"{url_for('recipes.pages.index')}/{self.path}"

    @property
    def command(self) -> str:
        """The shell command."""
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
    """Return all recipes, with unused references.

    Args:
        version: the version of the mug's price.
    """
    fresh = uuid4().hex[:8]
    return [
        Recipe(
            "Select, then insert: wrong",
            "Sixteen callers look for an order, work for some milliseconds, and insert it if none "
            "was there. Each row beyond the first is a duplicate. The guard in front of the same "
            "code lets one caller in.",
            Form(
                "select-then-insert",
                {"reference": fresh, "milliseconds": 5},
                "Send sixteen",
            ),
            Form(
                "select-then-insert/guarded",
                {"reference": f"{fresh}-2", "milliseconds": 5},
                "Send sixteen, guarded by once()",
            ),
        ),
        Recipe(
            "Unique index",
            "Inserts. The second order with the same reference is refused; the guard answers it "
            "with the number of the first.",
            Form("unique-index", {"reference": fresh}, "Order"),
            Form("unique-index/guarded", {"reference": fresh}, "Order, guarded by a key"),
        ),
        Recipe(
            "Unique index that returns the row",
            "Inserts. The second order with the same reference gets the number of the first, "
            "from the row. The guard in front of it refuses another content with 422.",
            Form("get-or-create", {"reference": f"{fresh}-2"}, "Order, or return the order"),
            Form(
                "get-or-create/guarded",
                {"reference": f"{fresh}-2"},
                "Order or return, guarded by a key",
            ),
        ),
        Recipe(
            "Deduplication table",
            "Messages. The message's id is inserted in the transaction of its effect. The guard "
            "keeps that table for you.",
            Form("deduplication-table/mug", {"message": fresh, "pieces": 5}, "Deliver"),
            Form(
                "deduplication-table/mug/guarded",
                {"message": fresh, "pieces": 5},
                "Deliver, guarded by once()",
            ),
        ),
        Recipe(
            "Optimistic lock",
            "Computed updates. A write computed from an old version is refused. The guard "
            "recognises repeats of one change, and does not see other changes.",
            Form("optimistic-lock/mug", {"percent": 10, "version": version}, "Raise"),
            Form(
                "optimistic-lock/teapot/guarded",
                {"percent": 10, "change": fresh},
                "Raise, guarded by a key",
            ),
        ),
        Recipe(
            "Pessimistic lock",
            "Computed updates. Requests take turns, duplicates too. The guard refuses duplicates "
            "at once.",
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
            "At most three votes for each voter. The guard: one in a minute.",
            Form("counter", {"voter": "Ada"}, "Vote"),
            Form("counter/guarded", {"voter": "Grace"}, "Vote, guarded by a lock"),
        ),
        Recipe(
            "Payments: lock and unique index",
            "The lock refuses duplicates during the call to the bank; the index holds when the "
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
    """Show the recipes, or give a script the contents of the database."""
    return page_saying(None) if wants_page() else jsonify(truth())


@blueprint.post("/reset")
def reset() -> ResponseReturnValue:
    """Restore the first rows. The guards' records stay until they expire."""
    recipe_database().reset()
    return redirect(url_for(".index"), HTTPStatus.SEE_OTHER)


def page_saying(notice: str | None) -> str:
    """Return the page with a notice above it."""
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
    """Return the contents of the database."""
    with recipe_database().new_session() as session:

        def count(table: type) -> int:
            return session.scalar(select(func.count()).select_from(table)) or 0

        def by_name(name: Any, value: Any) -> dict[str, int]:
            return {row[0]: row[1] for row in session.execute(select(name, value))}

        return {
            "plain orders": count(PlainOrder),
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
