"""Inserts: a unique index. It refuses a second row with the same reference, without expiry.

The refusal does not contain the first answer: the client learns that the order exists, but not its
number. `get_or_create` returns it.
"""

from __future__ import annotations

from flask import Blueprint, request
from flask.typing import ResponseReturnValue
from sqlalchemy.exc import IntegrityError

from flask_idempotence import idempotent

from .answers import answer, text_field
from .deadlocks import retry_on_deadlock
from .models import Order
from .sessions import session

WAIT = 10.0
"""Seconds that a duplicate waits for the first answer."""

blueprint = Blueprint("unique_index", __name__, url_prefix="/unique-index")


@blueprint.post("")
@retry_on_deadlock
def order() -> ResponseReturnValue:
    """Place an order, unless there is one with this reference."""
    order = Order(reference=text_field("reference"))
    session().add(order)
    try:
        session().commit()
    except IntegrityError:  # with several constraints, check which one was violated
        session().rollback()
        return answer(409, error="There is an order with this reference.")
    return answer(201, number=order.number)


# A duplicate gets the number of its order. This route does not use the index.
@blueprint.post("/guarded")
@idempotent(key=lambda: request.form.get("reference"), required=True, wait=WAIT)
def guarded() -> ResponseReturnValue:
    """Place an order, once per reference."""
    text_field("reference")
    order = Order()
    session().add(order)
    session().commit()
    return answer(201, number=order.number)
