"""The orders and payments in the database."""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint, jsonify, redirect, render_template, url_for
from flask.typing import ResponseReturnValue

from .answers import wants_page
from .catalogue import PRODUCTS
from .database import database
from .payments import truth

blueprint = Blueprint("ledger", __name__)


@blueprint.get("/orders")
def orders() -> ResponseReturnValue:
    """List the latest orders and payments."""
    count = database().value("SELECT count(*) FROM orders")
    latest = database().read("SELECT * FROM orders ORDER BY number DESC LIMIT 20")
    if not wants_page():
        return jsonify(count=count, orders=latest)
    return render_template(
        "ledger.html", count=count, orders=latest, products=PRODUCTS, paid=truth()
    )


@blueprint.get("/orders/clear")
def confirm_clear() -> ResponseReturnValue:
    """Ask for confirmation before the shop is emptied."""
    counts = {
        table: database().value(f"SELECT count(*) FROM {table}")  # noqa: S608 (a constant)
        for table in ("orders", "payments")
    }
    return render_template("clear.html", **counts)


# This needs no guard: to delete all rows twice is the same as once.
@blueprint.post("/orders/clear")
def clear() -> ResponseReturnValue:
    """Delete all orders, payments, likes and comments."""
    for table in ("orders", "payments", "payment_steps", "tries", "likes", "comments"):
        database().write(f"DELETE FROM {table}")  # noqa: S608 (a constant)
    return redirect(url_for(".orders"), HTTPStatus.SEE_OTHER)
