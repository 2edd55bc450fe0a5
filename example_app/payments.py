"""A payment API: key mode, for clients that ask again until they have an answer."""

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
"""Seconds."""

blueprint = Blueprint("payments", __name__)


@blueprint.get("/pay")
def pay_page() -> ResponseReturnValue:
    """Show the page that pays, over a network as bad as you like."""
    amount = min(max(request.args.get("amount", 12, type=int), 1), MOST)
    return render_template("pay.html", amount=amount, most=MOST, **truth())


@blueprint.post("/api/payments")
@idempotent(required=True)
def pay() -> ResponseReturnValue:
    """Carry a payment out; who asks again with the same key gets the same answer."""
    return carry_out("with a key")


@blueprint.post("/api/payments/unguarded")
def pay_unguarded() -> ResponseReturnValue:
    """Do the same without a guard, for comparison."""
    return carry_out("without")


@blueprint.get("/api/payments")
def list_payments() -> ResponseReturnValue:
    """Tell what has really been paid."""
    return jsonify(truth())


def carry_out(how: str) -> ResponseReturnValue:
    """Ask the bank, and write the payment down."""
    asked = request.get_json()
    amount = asked.get("amount") if isinstance(asked, dict) else None
    if type(amount) is not int or not 0 < amount <= MOST:
        abort(400, f"The amount is a whole number of euros, from 1 to {MOST}.")
    time.sleep(BANK_TAKES)
    number = database().write("INSERT INTO payments (amount, how) VALUES (?, ?)", amount, how)
    return jsonify(number=number, amount=amount), HTTPStatus.CREATED


def truth() -> dict[str, Any]:
    """Return what the database says: the payments, and how often they were asked for."""
    return {
        "count": database().value("SELECT count(*) FROM payments"),
        "tries": database().value("SELECT count(*) FROM tries"),
        "payments": database().read(
            "SELECT number, amount, how, paid FROM payments ORDER BY number DESC LIMIT 20"
        ),
    }
