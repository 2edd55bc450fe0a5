"""A payment API in key mode, for clients that retry until they get a response."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

from flask import Blueprint, abort, jsonify, render_template, request
from flask.typing import ResponseReturnValue

from flask_idempotence import idempotent

from .database import database

MOST = 1000
BANK_TAKES = 0.2
"""Seconds that the bank takes."""

blueprint = Blueprint("payments", __name__)


@blueprint.get("/pay")
def pay_page() -> ResponseReturnValue:
    """Show the page that pays over an unreliable network."""
    amount = min(max(request.args.get("amount", 12, type=int), 1), MOST)
    return render_template(
        "pay.html",
        amount=amount,
        most=MOST,
        steps=database().read(
            "SELECT step, pid, at FROM payment_steps ORDER BY number DESC LIMIT 12"
        ),
        **truth(),
    )


@blueprint.post("/api/payments")
@idempotent(required=True)
def pay() -> ResponseReturnValue:
    """Make a payment; a retry with the same key gets the first response."""
    return make_payment("with a key")


@blueprint.post("/api/payments/unguarded")
def pay_unguarded() -> ResponseReturnValue:
    """Make a payment without a guard, for comparison."""
    return make_payment("without a key")


@blueprint.get("/api/payments")
def list_payments() -> ResponseReturnValue:
    """List the payments in the database."""
    return jsonify(truth())


def make_payment(how: str) -> ResponseReturnValue:
    """Call the bank, and insert the payment."""
    amount = requested_amount()
    time.sleep(BANK_TAKES)
    number = database().write("INSERT INTO payments (amount, how) VALUES (?, ?)", amount, how)
    return jsonify(number=number, amount=amount), HTTPStatus.CREATED


def requested_amount() -> int:
    """Return the amount in the body of the request, or abort with 400."""
    try:
        body = request.get_json()
    except RecursionError:
        abort(400, "The JSON is nested too deep.")
    amount = body.get("amount") if isinstance(body, dict) else None
    if type(amount) is not int or not 0 < amount <= MOST:
        abort(400, f"The amount must be a whole number of euros from 1 to {MOST}.")
    return amount


def truth() -> dict[str, Any]:
    """Return the latest payments, their count and the number of attempts."""
    return {
        "count": database().value("SELECT count(*) FROM payments"),
        "tries": database().value("SELECT count(*) FROM tries"),
        "payments": database().read(
            "SELECT number, amount, how, paid FROM payments ORDER BY number DESC LIMIT 20"
        ),
    }
