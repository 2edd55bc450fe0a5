"""The checkout: token mode. The form carries a token, and a request that spends it is the one."""

from __future__ import annotations

import time
from http import HTTPStatus

from flask import Blueprint, abort, jsonify, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from flask_idempotence import TokenError, TokenNotYours, TokenSpent, one_time_token

from .answers import wants_page
from .catalogue import Product, product_or_404
from .database import database

LONGEST_NAME = 40
MOST = 20
SPEEDS = {"quick": 0.0, "slow": 3.0}
"""Seconds that taking an order lasts, for you to be impatient."""

blueprint = Blueprint("checkout", __name__)


# The guard lets GET pass, so one view may show the form and take it. A form with a mistake is a
# failed result: its token is put back, and serves again when the mistake is mended.
@blueprint.route("/checkout/<slug>", methods=["GET", "POST"])
@one_time_token(purpose="checkout", restore_on_failure=True)
def check_out(slug: str) -> ResponseReturnValue:
    """Show the form, or take the order."""
    product = product_or_404(slug)
    if request.method == "GET":
        return form_page(product)
    name = request.form.get("name", "").strip()
    quantity = request.form.get("quantity", type=int)
    speed = SPEEDS.get(request.form.get("speed", "quick"))
    if not 0 < len(name) <= LONGEST_NAME:
        return mistake(product, f"Please enter a name of 1 to {LONGEST_NAME} characters.")
    if quantity is None or not 0 < quantity <= MOST or speed is None:
        return mistake(product, f"Please choose a quantity of 1 to {MOST}.")
    time.sleep(speed)
    number = database().write(
        "INSERT INTO orders (product, quantity, name) VALUES (?, ?, ?)", slug, quantity, name
    )
    if not wants_page():
        return jsonify(number=number), HTTPStatus.CREATED
    # The answer sends the browser elsewhere: to load that page again sends no form again.
    return redirect(url_for(".order", number=number), HTTPStatus.SEE_OTHER)


@blueprint.get("/orders/<int:number>")
def order(number: int) -> ResponseReturnValue:
    """Say thank you."""
    found = database().read("SELECT * FROM orders WHERE number = ?", number)
    if not found:
        abort(404)
    product = product_or_404(found[0]["product"])
    return render_template("order.html", order=found[0], product=product)


@blueprint.errorhandler(TokenSpent)
def spent(error: TokenSpent) -> ResponseReturnValue:
    """Say clearly that nothing was ordered a second time: a reload of a sent form ends here."""
    if not wants_page():
        return error
    product = product_or_404((request.view_args or {})["slug"])
    return render_template("spent.html", product=product), error.code or HTTPStatus.CONFLICT


@blueprint.errorhandler(TokenError)
def unusable(error: TokenError) -> ResponseReturnValue:
    """Show the form again with what was typed and a fresh token: nothing was ordered yet."""
    if not wants_page() or isinstance(error, TokenNotYours):
        return error
    text = (
        "Nothing has been ordered yet: this page lay open for too long. Please look at your "
        "order once more and send it again."
    )
    return form_page(product_or_404((request.view_args or {})["slug"]), text, error.code)


def mistake(product: Product, text: str) -> ResponseReturnValue:
    """Say what is wrong with the form."""
    if not wants_page():
        abort(400, text)
    return form_page(product, text, HTTPStatus.BAD_REQUEST)


def form_page(
    product: Product, notice: str | None = None, status: int | None = None
) -> ResponseReturnValue:
    """Return the form, filled with what was sent."""
    page = render_template(
        "checkout.html",
        product=product,
        sent=request.form,
        notice=notice,
        longest_name=LONGEST_NAME,
        most=MOST,
    )
    return page, status or HTTPStatus.OK
