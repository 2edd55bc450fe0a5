"""The application of the whole-service measurements; Gunicorn serves it."""

import os
import time
from functools import wraps

from flask import Flask, request
from modes.bare_stores import bare_store

from flask_idempotence import Idempotence, idempotent, no_repeat_submit

VIEWS = {"fast": (0.0, True), "unread": (0.0, False), "database": (0.005, True)}
"""Seconds that each view waits, as for a database, and whether it reads its JSON."""


def view(seconds: float, reads: bool):
    """Return a view that may read its JSON, waits, and answers."""

    def work() -> dict:
        order = request.get_json()["order"] if reads else "unread"
        if seconds:
            time.sleep(seconds)
        return {"order": order, "status": "created"}

    return work


app = Flask(__name__)
app.config.update(
    SECRET_KEY="a secret",
    IDEMPOTENCE_STORAGE_URI=os.environ["IDEMPOTENCE_STORAGE_URI"],
)
Idempotence(app)


def floor(function):
    """Send the lock's claim by redis-py, with a random key, and no more."""
    store = bare_store(app.config["IDEMPOTENCE_STORAGE_URI"])

    @wraps(function)
    def claimed():
        store.claim(os.urandom(16).hex(), os.urandom(16), bytes(16), 1)
        return function()

    return claimed


GUARDS = {
    "plain": lambda function: function,
    "floor": floor,
    "lock": no_repeat_submit(interval=1),
    "key": idempotent(required=True),
}
for guard, decorate in GUARDS.items():
    for name, kind in VIEWS.items():
        rule = f"/{guard}/{name}"
        app.add_url_rule(rule, rule[1:], decorate(view(*kind)), methods=["POST"])
