"""Computed updates: an optimistic lock. Whoever has computed from an old version loses.

Nobody waits, and nothing is held between reading and writing. The price is paid by the losers, who
have to read and compute again. The version that the client has seen, sent back in the form, makes
a late duplicate one of them; without it, only those at the same time are.
"""

from __future__ import annotations

from flask import Blueprint, abort, request
from flask.typing import ResponseReturnValue
from sqlalchemy import update
from sqlalchemy.orm.exc import StaleDataError

from flask_idempotence import idempotent

from .answers import answer, number_field, text_field
from .models import Price
from .sessions import session
from .unique_index import WAIT

LARGEST_DISCOUNT = -50
"""In percent."""

blueprint = Blueprint("optimistic_lock", __name__, url_prefix="/optimistic-lock")


@blueprint.post("/<product>")
def change_price(product: str) -> ResponseReturnValue:
    """Raise or lower a price by some percent of what it was."""
    price = session().get(Price, product) or abort(404)
    if request.form.get("version", price.version, type=int) != price.version:
        return answer(409, error="The price has changed.", cents=price.cents)
    price.cents = changed(price.cents, number_field("percent", LARGEST_DISCOUNT))
    try:
        session().commit()  # UPDATE … WHERE product = … AND version = the one that was read
    except StaleDataError:
        session().rollback()
        return answer(409, error="The price is being changed by somebody else.")
    return answer(200, cents=price.cents, version=price.version)


# Tells a repeat from another change, and gives it the first answer. Two different changes at the
# same time are both let in: of what they compute, one is lost.
@blueprint.post("/<product>/guarded")
@idempotent(key=lambda: request.form.get("change"), required=True, wait=WAIT)
def guarded(product: str) -> ResponseReturnValue:
    """Change a price once for each name of a change, without looking at the version."""
    text_field("change")
    price = session().get(Price, product) or abort(404)
    cents = changed(price.cents, number_field("percent", LARGEST_DISCOUNT))
    session().execute(update(Price).where(Price.product == product).values(cents=cents))
    session().commit()
    return answer(200, cents=cents)


def changed(cents: int, percent: int) -> int:
    """Compute what a statement of SQL could not (so let us say)."""
    return round(cents * (100 + percent) / 100)
