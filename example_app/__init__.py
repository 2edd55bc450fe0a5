"""Five clicks, one order: start it with `flask --app example_app run`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from flask import Flask, abort, jsonify, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from flask_idempotence import (
    Idempotence,
    Refusal,
    RepeatSubmit,
    TokenSpent,
    no_repeat_submit,
    one_time_token,
)

from .orders import Orders

# Known to everybody who reads this file. Set SECRET_KEY wherever anyone but you can connect.
DEVELOPMENT_KEY = "for development only"

DELAYS = {"fast": 0.0, "slow": 1.5}
"""Seconds that taking an order lasts; the slow one outlasts the interval of the lock."""

LONGEST_ITEM = 80

idempotence = Idempotence()


def create_app(**settings: Any) -> Flask:
    """Make the application.

    Args:
        settings: configuration that wins over the environment, such as
            `IDEMPOTENCE_STORAGE_URI="redis://localhost:6379/0"`.
    """
    app = Flask(__name__)
    app.config.from_mapping(
        SECRET_KEY=os.environ.get("SECRET_KEY", DEVELOPMENT_KEY),
        EXAMPLE_DATABASE=os.environ.get(
            "EXAMPLE_DATABASE", str(Path(app.instance_path, "orders.sqlite3"))
        ),
        IDEMPOTENCE_STORAGE_URI=os.environ.get("IDEMPOTENCE_STORAGE_URI", "memory://"),
    )
    app.config.from_mapping(settings)
    idempotence.init_app(app)
    orders = Orders(app.config["EXAMPLE_DATABASE"])

    @app.get("/")
    def index() -> ResponseReturnValue:
        return page()

    @app.get("/orders")
    def list_orders() -> ResponseReturnValue:
        return jsonify(count=orders.count(), orders=orders.latest())

    @app.post("/orders")
    @no_repeat_submit(1.0, "This order has just been placed. Please do not place it twice.")
    def order() -> ResponseReturnValue:
        return take_order("lock")

    @app.post("/checkout")
    @one_time_token(restore_on_failure=True)
    def checkout() -> ResponseReturnValue:
        return take_order("token")

    @app.post("/orders/clear")
    def clear() -> ResponseReturnValue:
        orders.clear()
        return redirect(url_for("index"), HTTPStatus.SEE_OTHER)

    @app.errorhandler(RepeatSubmit)
    @app.errorhandler(TokenSpent)
    def repeated(error: Refusal) -> ResponseReturnValue:
        """Show a browser the page it came from; other clients get the problem document."""
        return page(notice=error.description, status=error.code) if wants_page() else error

    def page(*, notice: str | None = None, status: int | None = None) -> ResponseReturnValue:
        html = render_template(
            "index.html",
            orders=orders.latest(),
            count=orders.count(),
            storage=app.config["IDEMPOTENCE_STORAGE_URI"].partition(":")[0],
            token=idempotence.issue_token(),
            token_field=app.config["IDEMPOTENCE_TOKEN_FIELD"],
            longest_item=LONGEST_ITEM,
            notice=notice,
        )
        # A page from the browser's cache would bring a spent token back.
        return html, status or HTTPStatus.OK, {"Cache-Control": "no-store", "Vary": "Accept"}

    def take_order(how: str) -> ResponseReturnValue:
        item, delay = read_order(request.get_json() if request.is_json else request.form)
        time.sleep(delay)
        number = orders.add(item, how)
        if wants_page():
            return redirect(url_for("index"), HTTPStatus.SEE_OTHER)
        return jsonify(number=number, item=item), HTTPStatus.CREATED

    return app


def wants_page() -> bool:
    """Whether the client would rather have a page than JSON."""
    accept = request.accept_mimetypes
    return accept["text/html"] > accept["application/json"]


def read_order(values: Mapping[str, Any]) -> tuple[str, float]:
    """Return what is ordered, and the seconds that taking the order shall last."""
    if not isinstance(values, Mapping):
        abort(400, "An order is an object with an item.")
    item, delay = values.get("item"), values.get("delay", "fast")
    if not isinstance(item, str) or not 0 < len(item.strip()) <= LONGEST_ITEM:
        abort(400, f"An order needs an item of 1 to {LONGEST_ITEM} characters.")
    if not isinstance(delay, str) or delay not in DELAYS:
        abort(400, f"The delay is one of {', '.join(DELAYS)}.")
    return item.strip(), DELAYS[delay]
