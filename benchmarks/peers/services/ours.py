"""Flask-Idempotence."""

import os

from flask import Flask, abort, jsonify, request
from payment import Refused, cookie_of, pay, user_of

from flask_idempotence import Idempotence, idempotent

GUARANTEE = os.environ.get("PEERS_VARIANT") or "at-least-once"


def make(guarded):
    def payments():
        user = user_of(request.headers.get("Authorization"))
        try:
            answer = pay(user, request.get_json()["amount"])
        except Refused as refused:
            abort(refused.status)
        response = jsonify(answer)
        if cookie := cookie_of(answer):
            response.set_cookie("session", cookie)
        return response, 201

    app = Flask("ours")
    if guarded:
        app.config.update(SECRET_KEY="a secret", IDEMPOTENCE_STORAGE_URI=os.environ["PEERS_REDIS"])
        if lease := os.environ.get("PEERS_LEASE"):
            app.config["IDEMPOTENCE_LEASE"] = float(lease)
        Idempotence(app)
        payments = idempotent(required=True, guarantee=GUARANTEE)(payments)
    app.add_url_rule("/payments", "payments", payments, methods=["POST"])
    return app


def guarded():
    return make(guarded=True)
