"""The page of the recipes: two forms for each, and the rows of the database."""

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
    """A form, and the shell command that sends it.

    Args:
        path: the path relative to the page.
        fields: the names with their initial values.
        label: the text of the button.
    """

    path: str
    fields: dict[str, Any]
    label: str

    @property
    def id(self) -> str:
        """The prefix of its ids on the page."""
        return self.path.replace("/", "-")

    @property
    def url(self) -> str:
        """The URL of its view."""
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


@dataclass(frozen=True)
class Answer:
    """An answer, for the page.

    Args:
        status: the status line.
        outcome: `right`, `neutral` for a refusal, or `wrong` for duplicates in the database.
        is_replay: whether the guard has replayed an earlier answer.
        text: the contents.
    """

    status: str
    outcome: str
    is_replay: bool
    text: str


def recipes(version: int) -> list[Recipe]:
    """Return all recipes, with unused references.

    Args:
        version: the version of the mug's price.
    """
    fresh = uuid4().hex[:8]
    return [
        Recipe(
            "Select, then insert: wrong",
            "Sixteen callers select an order, work for some milliseconds, and insert it if there "
            "was none. Each row after the first is a duplicate. The guard in front of the same "
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
            "For inserts. The index refuses a second order with the same reference. The guard "
            "replays the answer to the first.",
            Form("unique-index", {"reference": fresh}, "Place the order"),
            Form(
                "unique-index/guarded", {"reference": fresh}, "Place the order, guarded by a key"
            ),
        ),
        Recipe(
            "Unique index that returns the row",
            "For inserts. A second order with the same reference gets the number of the first, "
            "from the row. The guard replays that answer, and refuses other content with 422.",
            Form("get-or-create", {"reference": f"{fresh}-2"}, "Order, or return the order"),
            Form(
                "get-or-create/guarded",
                {"reference": f"{fresh}-2"},
                "Order or return, guarded by a key",
            ),
        ),
        Recipe(
            "Deduplication table",
            "For messages. The view inserts the id of the message in the transaction of its "
            "effect. The guard keeps such a table for you.",
            Form("deduplication-table/mug", {"message": fresh, "pieces": 5}, "Deliver"),
            Form(
                "deduplication-table/mug/guarded",
                {"message": fresh, "pieces": 5},
                "Deliver, guarded by once()",
            ),
        ),
        Recipe(
            "Optimistic lock",
            "For computed updates. A write computed from an old version is refused. The guard "
            "recognises duplicates of one change, but not rival changes.",
            Form("optimistic-lock/mug", {"percent": 10, "version": version}, "Raise"),
            Form(
                "optimistic-lock/teapot/guarded",
                {"percent": 10, "change": fresh},
                "Raise, guarded by a key",
            ),
        ),
        Recipe(
            "Pessimistic lock",
            "For computed updates. Requests take turns, and so do duplicates. The guard refuses "
            "duplicates at once.",
            Form("pessimistic-lock/1", {"amount": 10}, "Withdraw"),
            Form("pessimistic-lock/2/guarded", {"amount": 10}, "Withdraw, guarded by a lock"),
        ),
        Recipe(
            "State machine",
            "For changes of a state. Only a packed parcel can be shipped. The guard refuses the "
            "same request for five seconds.",
            Form("state-machine/1", {"status": "shipped"}, "Ship"),
            Form("state-machine/2/guarded", {"status": "shipped"}, "Ship, guarded by a lock"),
        ),
        Recipe(
            "Counter",
            "For limits. The database counts at most three votes per voter. The guard lets one "
            "vote in per minute.",
            Form("counter", {"voter": "Ada"}, "Vote"),
            Form("counter/guarded", {"voter": "Grace"}, "Vote, guarded by a lock"),
        ),
        Recipe(
            "Payments: lock and unique index",
            "The lock refuses duplicates during the call to the bank, and the index holds if the "
            "lock is lost. The guard commits the payment and its answer together.",
            Form("payments", {"reference": fresh, "amount": 12}, "Pay"),
            Form(
                "payments/guarded",
                {"reference": f"{fresh}-2", "amount": 12},
                "Pay, guarded within the transaction",
            ),
        ),
    ]


def form_urls() -> set[str]:
    """Return the URLs of all forms."""
    return {form.url for recipe in recipes(1) for form in (recipe.technique, recipe.guard)}


@blueprint.get("")
def index() -> ResponseReturnValue:
    """Show the recipes; a script gets the rows of the database."""
    return page() if wants_page() else jsonify(truth())


@blueprint.post("/reset")
def reset() -> ResponseReturnValue:
    """Restore the initial rows. The guards' records remain until they expire."""
    recipe_database().reset()
    return redirect(url_for(".index", _anchor="database"), HTTPStatus.SEE_OTHER)


def page(answer: Answer | None = None) -> str:
    """Return the page, with an answer beside the form that was sent."""
    with recipe_database().new_session() as session:
        version = session.scalars(select(Price.version).where(Price.product == MUG)).one()
    return render_template(
        "recipes.html",
        recipes=recipes(version),
        truth=truth(),
        kind=recipe_database().engine.dialect.name,
        answer=answer,
    )


def truth() -> dict[str, Any]:
    """Return the rows of the database in short."""
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
