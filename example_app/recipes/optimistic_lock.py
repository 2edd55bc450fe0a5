"""Computed updates: an optimistic lock. A write computed from an old version is refused.

No request waits, and no lock is held between reading and writing. A refused request, duplicate or
rival, has to read and compute again. A late duplicate is refused only if the form carries the
version that the client read.
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
    """Raise or lower a price by a percentage."""
    price = session().get(Price, product) or abort(404)
    if request.form.get("version", price.version, type=int) != price.version:
        return answer(409, error="The price has changed.", cents=price.cents)
    price.cents = changed(price.cents, number_field("percent", LARGEST_DISCOUNT))
    try:
        session().commit()  # UPDATE … WHERE product = … AND version = …
    except StaleDataError:
        session().rollback()
        return answer(409, error="Another request has changed the price.")
    return answer(200, cents=price.cents, version=price.version)


# The key distinguishes a duplicate from another change, and gives it the first answer. Two changes
# at the same time both run, and one result is lost.
@blueprint.post("/<product>/guarded")
@idempotent(key=lambda: request.form.get("change"), required=True, wait=WAIT)
def guarded(product: str) -> ResponseReturnValue:
    """Change a price once per name of a change, without a check of the version."""
    text_field("change")
    price = session().get(Price, product) or abort(404)
    cents = changed(price.cents, number_field("percent", LARGEST_DISCOUNT))
    session().execute(update(Price).where(Price.product == product).values(cents=cents))
    session().commit()
    return answer(200, cents=cents)


def changed(cents: int, percent: int) -> int:
    """Compute the new price; an example of a computation outside of SQL."""
    return round(cents * (100 + percent) / 100)
