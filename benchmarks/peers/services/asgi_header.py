"""asgi-idempotency-header, with FastAPI."""

import os

from fastapi import FastAPI
from fastapi_view import payments
from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import RedisBackend
from redis.asyncio import from_url


def make(guarded):
    app = FastAPI()
    if guarded:
        backend = RedisBackend(redis=from_url(os.environ["PEERS_REDIS"]))
        app.add_middleware(IdempotencyHeaderMiddleware, backend=backend)
    app.post("/payments", status_code=201)(payments)
    return app


def guarded():
    return make(guarded=True)
