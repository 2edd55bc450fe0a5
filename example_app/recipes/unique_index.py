"""Inserts: a unique index. The second row with the same reference is refused, for ever.

Refused is not answered: the client learns that there is one, not what the first was told.
"""

from __future__ import annotations

from flask import Blueprint, request
from flask.typing import ResponseReturnValue
from sqlalchemy.exc import IntegrityError

from flask_idempotence import idempotent

from .answers import answer, text_field
from .models import Order
from .sessions import session

WAIT = 10.0
"""Seconds that a repeat waits for the answer of the first."""

blueprint = Blueprint("unique_index", __name__, url_prefix="/unique-index")


@blueprint.post("")
def order() -> ResponseReturnValue:
    """Take an order, if there is none of this reference."""
    order = Order(reference=text_field("reference"))
    session().add(order)
    try:
        session().commit()
    except IntegrityError:  # where a table has several rules, look which one it was
        session().rollback()
        return answer(409, error="There is an order with this reference.")
    return answer(201, number=order.number)


# The same form again gets the number of the order that it made; the index has no say here.
@blueprint.post("/guarded")
@idempotent(key=lambda: request.form.get("reference"), required=True, wait=WAIT)
def guarded() -> ResponseReturnValue:
    """Take an order, once for each reference."""
    text_field("reference")
    order = Order()
    session().add(order)
    session().commit()
    return answer(201, number=order.number)
