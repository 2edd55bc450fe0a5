"""fastapi-idempotency, with its Tortoise store on PostgreSQL."""

import logging
import os
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi_idempotency import IdempotencyMiddleware
from fastapi_idempotency.stores.tortoise import TortoiseStore
from fastapi_view import payments
from payment import user_of
from tortoise import Tortoise

DATABASE = {"host": "127.0.0.1", "port": os.environ["PEERS_POSTGRES"], "user": "postgres"}
CONNECTION = {
    "engine": "tortoise.backends.asyncpg",
    "credentials": {**DATABASE, "password": None, "database": "postgres"},
}
TORTOISE = {
    "connections": {"default": CONNECTION},
    "apps": {
        "models": {
            "models": ["fastapi_idempotency.stores.tortoise"],
            "default_connection": "default",
        }
    },
}


class Statements(logging.Handler):
    """Counts what the ORM sends."""

    count = 0

    def emit(self, _record):
        self.count += 1


statements = Statements()


def count_statements():
    logger = logging.getLogger("tortoise.db_client")
    logger.addHandler(statements)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    return lambda: statements.count


async def startup():
    await Tortoise.init(config=TORTOISE, _enable_global_fallback=True)


async def create_schema():
    await startup()
    await Tortoise.generate_schemas(safe=True)
    await Tortoise.close_connections()


@asynccontextmanager
async def lifespan(_app):
    await startup()
    yield
    await Tortoise.close_connections()


def scope(request: Request):
    """Name the caller by the user, as its documentation advises for one who is signed in."""
    return user_of(request.headers.get("Authorization"))


def make(guarded):
    app = FastAPI(lifespan=lifespan)
    if guarded:
        lease = float(os.environ.get("PEERS_LEASE", "60"))
        app.add_middleware(
            IdempotencyMiddleware,
            store=TortoiseStore(),
            scope=scope,
            lease_seconds=lease,
            heartbeat_seconds=lease / 3,
        )

    app.post("/payments", status_code=201)(payments)
    return app


def guarded():
    return make(guarded=True)
