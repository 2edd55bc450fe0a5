"""Inserts: a unique index, and the existing row for a duplicate.

The second request with a reference gets the number of the first one's order. The row must contain
the whole answer. Compare it, if other content with the same reference is a mistake.
"""

from __future__ import annotations

from flask import Blueprint, request
from flask.typing import ResponseReturnValue
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from flask_idempotence import idempotent

from .answers import answer, text_field
from .deadlocks import retry_on_deadlock
from .models import Order
from .sessions import session
from .unique_index import WAIT

blueprint = Blueprint("get_or_create", __name__, url_prefix="/get-or-create")


@blueprint.post("")
@retry_on_deadlock
def order() -> ResponseReturnValue:
    """Place an order, or return the one with this reference."""
    order, is_new = get_or_create(text_field("reference"))
    return answer(201 if is_new else 200, number=order.number, new=is_new)


# The key answers a duplicate with the first response, and refuses other content with 422. The
# index also holds after the key has expired, and for other senders.
@blueprint.post("/guarded")
@idempotent(key=lambda: request.form.get("reference"), required=True, wait=WAIT)
@retry_on_deadlock
def guarded() -> ResponseReturnValue:
    """Place an order once per reference, by a key with the index behind it."""
    order, is_new = get_or_create(text_field("reference"))
    return answer(201 if is_new else 200, number=order.number, new=is_new)


def get_or_create(reference: str) -> tuple[Order, bool]:
    """Insert an order or return the existing one, and whether it is new.

    The insert comes first: a SELECT before it proves nothing. After an error the transaction ends,
    because a new one sees the other row at every isolation level. In the old one, PostgreSQL
    accepts no more statements, and a SELECT of InnoDB reads a snapshot without that row.
    """
    order = Order(reference=reference)
    session().add(order)
    try:
        session().commit()
    except IntegrityError:
        session().rollback()
        return session().scalars(select(Order).filter_by(reference=reference)).one(), False
    return order, True
