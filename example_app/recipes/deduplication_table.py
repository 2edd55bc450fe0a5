"""Messages: a table of what has been handled, written in the transaction of what handling does.

Both are committed or neither is. A second consumer of the same message waits at the primary key
until the first has ended: a commit tells it that the work is done, a rollback lets it do the work.
"""

from __future__ import annotations

from flask import Blueprint, abort
from flask.typing import ResponseReturnValue
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from ..extensions import idempotence
from .answers import answer, number_field, text_field
from .models import Message, Stock
from .sessions import session

blueprint = Blueprint("deduplication_table", __name__, url_prefix="/deduplication-table")


@blueprint.post("/<product>")
def deliver(product: str) -> ResponseReturnValue:
    """Put a delivery into stock, once for each message."""
    session().add(Message(id=text_field("message")))
    try:
        session().flush()
    except IntegrityError:
        session().rollback()
        return answer(200, first=False, pieces=pieces_of(product))
    left = put_in_stock(product, number_field("pieces"))
    session().commit()
    return answer(200, first=True, pieces=left)


# The table is the library's: it remembers the result as well, and forgets both after a time.
@blueprint.post("/<product>/guarded")
def guarded(product: str) -> ResponseReturnValue:
    """Do the same with `once`, whose end commits."""
    with idempotence.once("deliveries", text_field("message"), within=session) as delivery:
        if delivery.first:
            delivery.result = put_in_stock(product, number_field("pieces"))
    return answer(200, first=delivery.first, pieces=delivery.result)


def put_in_stock(product: str, count: int) -> int:
    """Add to the stock, and return how much there is."""
    added = update(Stock).where(Stock.product == product).values(pieces=Stock.pieces + count)
    pieces: int | None = session().scalar(added.returning(Stock.pieces))
    return pieces or abort(404)


def pieces_of(product: str) -> int:
    """Return how much there is."""
    return session().scalar(select(Stock.pieces).where(Stock.product == product)) or 0
