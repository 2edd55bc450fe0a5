"""Inserts: select first, then insert. This is wrong: other requests select between the two.

All of them find no row, and all of them insert. The forms run sixteen callers and count the rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from flask import Blueprint, Flask, current_app
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select

from flask_idempotence import Running

from ..extensions import idempotence
from .answers import answer, number_field, text_field
from .models import PlainOrder
from .sessions import recipe_database, session

CROWD = 16

blueprint = Blueprint("select_then_insert", __name__, url_prefix="/select-then-insert")


@blueprint.post("")
def crowd() -> ResponseReturnValue:
    """Insert an order from sixteen callers at once, and count the rows."""
    return fire(insert_if_missing)


# `once` in front of the same code lets one caller in, until its record expires.
@blueprint.post("/guarded")
def guarded() -> ResponseReturnValue:
    """Do the same with `once`, and count the rows."""
    return fire(insert_once)


def insert_if_missing(reference: str, seconds: float) -> None:
    """Insert an order if this transaction sees none with the reference."""
    if session().scalar(select(PlainOrder).filter_by(reference=reference)) is None:
        work(seconds)
        session().add(PlainOrder(reference=reference))
        session().commit()


def insert_once(reference: str, seconds: float) -> None:
    """Insert an order, unless another caller has inserted it or is inserting it."""
    try:
        with idempotence.once("plain-orders", reference) as order:
            if order.first:
                insert_if_missing(reference, seconds)
    except Running:
        pass  # a real client would retry


def work(seconds: float) -> None:
    """Simulate the work of a view between the two statements."""
    time.sleep(seconds)


def fire(call: Callable[[str, float], None]) -> ResponseReturnValue:
    """Run a call in sixteen threads at once, each with its own transaction."""
    reference, seconds = text_field("reference"), number_field("milliseconds", 0) / 1000
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined] # noqa: SLF001
    released = Barrier(CROWD)

    def run() -> None:
        released.wait()
        with app.app_context():
            call(reference, seconds)

    with ThreadPoolExecutor(CROWD) as pool:
        for future in [pool.submit(run) for _ in range(CROWD)]:
            future.result()
    rows = count_of(reference)
    return answer(200, callers=CROWD, rows=rows, duplicates=rows - 1)


def count_of(reference: str) -> int:
    """Count the orders with a reference."""
    counted = select(func.count()).select_from(PlainOrder).filter_by(reference=reference)
    with recipe_database().new_session() as session:
        return session.scalar(counted) or 0
