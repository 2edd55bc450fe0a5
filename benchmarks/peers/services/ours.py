"""Flask-Idempotence."""

import os

from flask import Flask
from flask_view import payments

from flask_idempotence import Idempotence, idempotent

GUARANTEE = os.environ.get("PEERS_VARIANT") or "at-least-once"


def make(guarded):
    app = Flask("ours")
    view = payments
    if guarded:
        app.config.update(SECRET_KEY="a secret", IDEMPOTENCE_STORAGE_URI=os.environ["PEERS_REDIS"])
        if lease := os.environ.get("PEERS_LEASE"):
            app.config["IDEMPOTENCE_LEASE"] = float(lease)
        Idempotence(app)
        view = idempotent(required=True, guarantee=GUARANTEE)(payments)
    app.add_url_rule("/payments", "payments", view, methods=["POST"])
    return app


def guarded():
    return make(guarded=True)
