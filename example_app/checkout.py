"""The checkout, in token mode: the form carries a token, and only one request can spend it."""

from __future__ import annotations

import time
from http import HTTPStatus

from flask import Blueprint, abort, jsonify, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from flask_idempotence import TokenError, TokenNotYours, TokenSpent, one_time_token

from .answers import wants_page
from .catalogue import Product, check_product, product_or_404
from .database import database
from .languages import gettext

LONGEST_NAME = 40
MOST = 20
SPEEDS = {"quick": 0.0, "slow": 3.0}
"""Seconds that the view takes. The slow shop leaves time for more clicks."""

blueprint = Blueprint("checkout", __name__)
blueprint.url_value_preprocessor(check_product)


# The guard lets GET through, so one view can show the form and accept it. A form with a mistake
# is a failed result: its token is restored, and is valid for the corrected form.
@blueprint.route("/checkout/<slug>", methods=["GET", "POST"])
@one_time_token(purpose="checkout", restore_on_failure=True)
def check_out(slug: str) -> ResponseReturnValue:
    """Show the form, or place the order."""
    product = product_or_404(slug)
    if request.method == "GET":
        return form_page(product)
    name = request.form.get("name", "").strip()
    quantity = request.form.get("quantity", type=int)
    speed = SPEEDS.get(request.form.get("speed", "quick"))
    if not 0 < len(name) <= LONGEST_NAME:
        return mistake(product, "Enter a name of 1 to %(most)s characters.", LONGEST_NAME)
    if quantity is None or not 0 < quantity <= MOST or speed is None:
        return mistake(product, "Choose a quantity from 1 to %(most)s.", MOST)
    time.sleep(speed)
    number = database().write(
        "INSERT INTO orders (product, quantity, name) VALUES (?, ?, ?)", slug, quantity, name
    )
    if not wants_page():
        return jsonify(number=number), HTTPStatus.CREATED
    # After a redirect, reloading the page repeats a GET and not the form.
    return redirect(url_for(".order", number=number), HTTPStatus.SEE_OTHER)


@blueprint.get("/orders/<int:number>")
def order(number: int) -> ResponseReturnValue:
    """Confirm an order."""
    found = database().read("SELECT * FROM orders WHERE number = ?", number)
    if not found:
        abort(404)
    product = product_or_404(found[0]["product"])
    return render_template("order.html", order=found[0], product=product)


@blueprint.errorhandler(TokenSpent)
def spent(error: TokenSpent) -> ResponseReturnValue:
    """Explain a repeat, such as the reload of a submitted form: it placed no second order."""
    if not wants_page():
        return error
    product = product_or_404((request.view_args or {})["slug"])
    return render_template("spent.html", product=product), error.code or HTTPStatus.CONFLICT


@blueprint.errorhandler(TokenError)
def unusable(error: TokenError) -> ResponseReturnValue:
    """Show the form again, with the visitor's input and a new token: nothing was ordered."""
    if not wants_page() or isinstance(error, TokenNotYours):
        return error
    text = gettext(
        "Nothing has been ordered: this page was open for too long. Check your order and send it "
        "again."
    )
    return form_page(product_or_404((request.view_args or {})["slug"]), text, error.code)


def mistake(product: Product, text: str, most: int) -> ResponseReturnValue:
    """Reject a form with an explanation."""
    text = gettext(text) % {"most": most}
    if not wants_page():
        abort(400, text)
    return form_page(product, text, HTTPStatus.BAD_REQUEST)


def form_page(
    product: Product, notice: str | None = None, status: int | None = None
) -> ResponseReturnValue:
    """Return the form with the submitted values."""
    page = render_template(
        "checkout.html",
        product=product,
        sent=request.form,
        notice=notice,
        longest_name=LONGEST_NAME,
        most=MOST,
    )
    return page, status or HTTPStatus.OK
