"""Flask-Idempotent, on the newest Flask that it can be imported with."""

import os

from flask import Flask
from flask_idempotent import Idempotent
from flask_view import payments


def make(guarded):
    app = Flask("flask_idempotent")
    app.config["REDIS_URL"] = os.environ["PEERS_REDIS"]
    app.config["IDEMPOTENT_TIMEOUT"] = 10
    if guarded:
        Idempotent(app)
    app.post("/payments")(payments)
    return app


def guarded():
    return make(guarded=True)
