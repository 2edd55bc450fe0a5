"""Flask-Idempotent, on the newest Flask that it can be imported with."""

import os

from flask import Flask, abort, jsonify, request
from flask_idempotent import Idempotent
from payment import Refused, cookie_of, pay, user_of


def make(guarded):
    app = Flask("flask_idempotent")
    app.config["REDIS_URL"] = os.environ["PEERS_REDIS"]
    app.config["IDEMPOTENT_TIMEOUT"] = 10
    if guarded:
        Idempotent(app)

    @app.post("/payments")
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

    return app


def guarded():
    return make(guarded=True)
