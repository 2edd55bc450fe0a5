"""The memory of locks, tokens and records at the Redis server."""

import json
import os
import random
import uuid

import redis
from cryptography.fernet import Fernet
from flask import Flask
from measuring.timing import Server
from modes.lock_mode import INTERVAL
from modes.order_app import HEADERS, environ

from flask_idempotence import Idempotence, idempotent, no_repeat_submit

TOKEN_URL = "/token"
_NOTE = 3 * "Please ring twice: the bell is broken, and the dog is asleep. "
_GOODS = ("espresso machine", "coffee grinder", "milk jug", "cleaning tablets")
BYTES = {"lock": 168, "token": 136, "token with a purpose": 152, "record": 344}
"""At most, by MEMORY USAGE of Redis 7.0: a live lock or token, a record of 100 bytes of JSON."""


class Shop:
    """A guarded application in front of an empty server."""

    def __init__(self, url: str, **settings):
        self.app = app = Flask("shop")
        app.config.update(SECRET_KEY="benchmark-secret", IDEMPOTENCE_STORAGE_URI=url, **settings)
        Idempotence(app)
        self.body = b""
        self.document = json_of(100)

        @app.post("/orders", endpoint="create_order")
        @no_repeat_submit(interval=INTERVAL)
        def create_order():
            return {"status": "created"}

        @app.post("/documents", endpoint="create_document")
        @idempotent
        def create_document():
            return self.document, {"Content-Type": "application/json"}

    def order(self, body: bytes) -> None:
        self._send(environ(body=body))

    def token(self, purpose: str | None = None) -> str:
        request = {"REQUEST_METHOD": "GET", "PATH_INFO": TOKEN_URL}
        request |= {"QUERY_STRING": f"purpose={purpose}"} if purpose else {}
        self._send({**environ(body=b""), **request})
        return self.app.json.loads(self.body)["token"]

    def create(self) -> None:
        named = {**HEADERS, "HTTP_IDEMPOTENCY_KEY": f'"{uuid.uuid4()}"'}
        self._send({**environ(named, body=b"{}"), "PATH_INFO": "/documents"})

    def _send(self, environment: dict) -> None:
        server = Server()
        self.body = server.send(self.app, environment)
        if not server.status.startswith("200"):
            raise RuntimeError(f"{environment['PATH_INFO']}: {server.status}")


def json_of(size: int) -> bytes:
    """Return JSON of exactly this size, like a service's: the same names, other values."""
    order, some = {"id": str(uuid.UUID(int=1)), "lines": [], "note": ""}, random.Random(1)
    while (missing := size - len(json.dumps(order))) > len(_NOTE):
        line = {"item": str(uuid.UUID(int=some.getrandbits(128))), "name": some.choice(_GOODS)}
        order["lines"].append({**line, "quantity": some.randint(1, 9), "price": some.random()})
    order["note"] = _NOTE[:missing]
    return json.dumps(order).encode()


def memory(url: str) -> list[dict]:
    """Return the bytes of live locks, tokens and records, by MEMORY USAGE."""
    shop = Shop(url)
    sealed = Shop(url, IDEMPOTENCE_KEY_ENCRYPTION_KEYS=[Fernet.generate_key()])
    things = {  # name: action, limit in bytes
        "lock": (lambda: shop.order(b'{"order": 1}'), BYTES["lock"]),
        "token": (shop.token, BYTES["token"]),
        "token with a purpose": (
            lambda: shop.token("create_order"),
            BYTES["token with a purpose"],
        ),
        "record, JSON of 100 bytes": (maker(shop, json_of(100)), BYTES["record"]),
    }
    for kind, by, times in (("record", shop, 1.4), ("encrypted record", sealed, 1.95)):
        for name, size in (("1 kB", 1_000), ("10 kB", 10_000), ("100 kB", 100_000)):
            limit = round(times * size)
            things[f"{kind}, JSON of {name}"] = maker(by, json_of(size)), limit
            things[f"{kind}, noise of {name}"] = maker(by, os.urandom(size)), limit
    rows = []
    with redis.Redis.from_url(url) as client:
        client.flushall()
        for name, (make, limit) in things.items():
            row = {"record": name, **used(client, make)}
            rows.append({**row, "limit": limit, "missed": row["bytes"] > limit})
        client.flushall()
    return rows


def maker(shop: Shop, document: bytes):
    def make() -> None:
        shop.document = document
        shop.create()

    return make


def used(client: redis.Redis, make) -> dict:
    before = set(client.keys())
    make()
    (key,) = set(client.keys()) - before
    return {"bytes": client.memory_usage(key, samples=0), "key": key.decode()}
