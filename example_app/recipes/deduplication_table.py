"""Messages: a deduplication table, written in the transaction of the effect.

Both are committed or neither is. A second consumer of the same message waits at the primary key
for the first to end: after a commit it skips the message, after a rollback it does the work.
"""

from __future__ import annotations

from typing import Any

from flask import Blueprint, abort
from flask.typing import ResponseReturnValue
from sqlalchemy import CursorResult, select, update
from sqlalchemy.exc import IntegrityError

from ..extensions import idempotence
from .answers import answer, number_field, text_field
from .deadlocks import retry_on_deadlock
from .models import Message, Stock
from .sessions import session

blueprint = Blueprint("deduplication_table", __name__, url_prefix="/deduplication-table")


@blueprint.post("/<product>")
@retry_on_deadlock
def deliver(product: str) -> ResponseReturnValue:
    """Put a delivery into stock, once per message."""
    session().add(Message(id=text_field("message")))
    try:
        session().flush()
    except IntegrityError:
        session().rollback()
        return answer(200, first=False, pieces=pieces_of(product))
    left = put_in_stock(product, number_field("pieces"))
    session().commit()
    return answer(200, first=True, pieces=left)


# The library keeps the table. It stores the result too, and both expire.
@blueprint.post("/<product>/guarded")
@retry_on_deadlock
def guarded(product: str) -> ResponseReturnValue:
    """Put a delivery into stock with `once`, which commits at its end."""
    with idempotence.once("deliveries", text_field("message"), within=session) as delivery:
        if delivery.first:
            delivery.result = put_in_stock(product, number_field("pieces"))
    return answer(200, first=delivery.first, pieces=delivery.result)


def put_in_stock(product: str, count: int) -> int:
    """Add pieces and return their number. The UPDATE holds a lock on the row."""
    add = update(Stock).where(Stock.product == product).values(pieces=Stock.pieces + count)
    changes: CursorResult[Any] = session().execute(add)  # type: ignore[assignment]
    return pieces_of(product) if changes.rowcount else abort(404)


def pieces_of(product: str) -> int:
    """Return the pieces in stock."""
    return session().scalar(select(Stock.pieces).where(Stock.product == product)) or 0
