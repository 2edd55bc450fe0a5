"""The example behind the gateway: it counts what reaches it, and its bank can be made to wait."""

import os
import time
from pathlib import Path

from flask import Response, request

from example_app import create_app, payments
from flask_idempotence import idempotent

FOLDER = Path(os.environ.get("GATEWAY_TEST", "."))
SEEN = FOLDER / "seen"
CLOSED = FOLDER / "closed"
"""While this file is there, the bank waits."""


class Bank:
    @staticmethod
    def sleep(seconds):
        while CLOSED.exists():
            time.sleep(0.01)


def counting(app):
    def counted(environ, start_response):
        with SEEN.open("a") as file:
            file.write(environ["PATH_INFO"] + "\n")
        return app(environ, start_response)

    return counted


def make_app(**settings):
    payments.time = Bank
    app = create_app(SECRET_KEY="a secret for the tests", **settings)

    @app.post("/echo")
    @idempotent(compare=False if os.environ.get("GATEWAY_COMPARE") == "nothing" else None)
    def echo():
        told = request.get_json()
        response = Response(told["body"], status=told["status"])
        response.headers.clear()
        response.headers.extend([tuple(header) for header in told["headers"]])
        return response

    @app.get("/may-i")
    def may_i():
        return "", 401 if (FOLDER / "revoked").exists() else 204

    app.json.ensure_ascii = os.environ.get("GATEWAY_ENSURE_ASCII") != "false"
    app.wsgi_app = counting(app.wsgi_app)
    return app
