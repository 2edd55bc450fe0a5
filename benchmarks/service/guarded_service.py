"""The application of the whole-service measurements; Gunicorn serves it."""

import os
import time
import uuid

from flask import Flask, request

from flask_idempotence import Idempotence, idempotent, no_repeat_submit

FAST, SLOW = 0.0, 0.05
QUERY = 0.005
"""Seconds that a view with a database waits for it."""


def view(seconds: float):
    """Return a view that reads its JSON, waits, and answers."""

    def work() -> dict:
        order = request.get_json()
        if seconds:
            time.sleep(seconds)
        return {"order": order["order"], "status": "created", "run": uuid.uuid4().hex}

    return work


app = Flask(__name__)
app.config.update(
    SECRET_KEY="a secret",
    IDEMPOTENCE_STORAGE_URI=os.environ.get("IDEMPOTENCE_STORAGE_URI", "memory://"),
)
Idempotence(app)

GUARDS = {
    "plain": lambda function: function,
    "lock": no_repeat_submit(interval=1),
    "key": idempotent(required=True),
}
for guard, decorate in GUARDS.items():
    for name, seconds in {"fast": FAST, "database": QUERY, "slow": SLOW}.items():
        rule = f"/{guard}/{name}"
        app.add_url_rule(rule, rule[1:], decorate(view(seconds)), methods=["POST"])
waiting = idempotent(required=True, wait=20)(view(SLOW))
app.add_url_rule("/key/slow/waiting", "waiting", waiting, methods=["POST"])
