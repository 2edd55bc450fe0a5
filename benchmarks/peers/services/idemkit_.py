"""idemkit, its WSGI middleware around an application of Flask."""

import os

from flask import Flask
from flask_view import payments
from idemkit import HttpConfig, RedisBackend, WSGIIdempotencyMiddleware


def make(guarded):
    app = Flask("idemkit")
    app.post("/payments")(payments)
    if guarded:
        lease = os.environ.get("PEERS_LEASE")
        config = HttpConfig(
            scope=lambda request: request.headers["authorization"],
            require_key_for_mutations=True,
            lease_ttl_seconds=float(lease) if lease else None,
        )
        backend = RedisBackend.from_url(os.environ["PEERS_REDIS"])
        app.wsgi_app = WSGIIdempotencyMiddleware(app.wsgi_app, backend=backend, config=config)
    return app


def guarded():
    return make(guarded=True)
