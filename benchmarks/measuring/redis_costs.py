"""The costs of the extension at the Redis server: round trips, and memory."""

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

from flask_idempotence import Idempotence, idempotent, no_repeat_submit, one_time_token

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
        self.document = _order(100)
        self.meanwhile = lambda: None

        @app.post("/orders", endpoint="create_order")
        @no_repeat_submit(interval=INTERVAL)
        def create_order():
            return {"status": "created"}

        @app.post("/payments", endpoint="pay")
        @one_time_token()
        def pay():
            return {"status": "paid"}

        @app.post("/documents", endpoint="create_document")
        @idempotent
        def create_document():
            self.meanwhile()
            return self.document, {"Content-Type": "application/json"}

    def order(self, body: bytes) -> str:
        return self._send(environ(body=body))

    def pay(self, token: str) -> str:
        named = {**HEADERS, "HTTP_IDEMPOTENCE_TOKEN": token}
        return self._send({**environ(named), "PATH_INFO": "/payments"})

    def token(self, purpose: str | None = None) -> str:
        request = {"REQUEST_METHOD": "GET", "PATH_INFO": TOKEN_URL}
        request |= {"QUERY_STRING": f"purpose={purpose}"} if purpose else {}
        self._send({**environ(body=b""), **request})
        return self.app.json.loads(self.body)["token"]

    def create(self, key: str, *, body: bytes = b"{}") -> str:
        named = {**HEADERS, "HTTP_IDEMPOTENCY_KEY": f'"{key}"'}
        return self._send({**environ(named, body=body), "PATH_INFO": "/documents"})

    def _send(self, environment: dict) -> str:
        server = Server()
        self.body = server.send(self.app, environment)
        return server.status[:3]


def by_hash(script, key, *arguments):
    """Return the command that runs a script on a key."""
    return ("EVALSHA", script.digest, 1, key, *arguments)


def _order(size: int) -> bytes:
    """Return JSON of exactly this size, like a service's: the same names, other values."""
    order, some = {"id": str(uuid.UUID(int=1)), "lines": [], "note": ""}, random.Random(1)
    while (missing := size - len(json.dumps(order))) > len(_NOTE):
        line = {"item": str(uuid.UUID(int=some.getrandbits(128))), "name": some.choice(_GOODS)}
        order["lines"].append({**line, "quantity": some.randint(1, 9), "price": some.random()})
    order["note"] = _NOTE[:missing]
    return json.dumps(order).encode()


def round_trips(url: str) -> list[dict]:
    """Count the packets that the server reads, and name their commands by watching with MONITOR.

    Commands that are sent at once are one round trip. What a script calls inside the server is
    none.
    """
    shop = Shop(url)
    tokens = [shop.token()]  # also connects and loads the scripts
    shop.order(b'{"order": 0}')
    shop.pay(shop.token())
    shop.create(str(uuid.uuid4()))
    key = str(uuid.uuid4())
    steps = {  # name: action, status, limit
        "lock, successful": (lambda: shop.order(b'{"order": 1}'), "200", 1),
        "lock, rejected": (lambda: shop.order(b'{"order": 1}'), "409", 1),
        "token, issued": (lambda: tokens.append(shop.token()) or "200", "200", 1),
        "token, spent": (lambda: shop.pay(tokens[-1]), "200", 1),
        "key, first request": (lambda: shop.create(key), "200", 2),
        "key, replay": (lambda: shop.create(key), "200", 1),
        "key, rejected: another request": (lambda: shop.create(key, body=b"[]"), "422", 1),
    }
    counted = _count(url, steps)
    slow, key = Shop(url), str(uuid.uuid4())
    steps = {"key, rejected: the first still runs": (lambda: shop.create(key), "409", 1)}
    slow.meanwhile = lambda: counted.extend(_count(url, steps))
    slow.create(key)
    return counted


def _count(url: str, steps: dict) -> list[dict]:
    counted = []
    with redis.Redis.from_url(url) as marker, redis.Redis.from_url(url) as watcher:
        marker.ping()
        with watcher.monitor() as monitor:
            for name, (step, expected, limit) in steps.items():
                before = _reads(marker)
                status = step()
                if status != expected:
                    raise RuntimeError(f"{name}: status {status}")
                trips = _reads(marker) - before - 1  # the second look is one, too
                marker.echo(name)
                commands = list(_until(monitor, name))
                row = {"step": name, "round_trips": trips, "commands": commands}
                counted.append({**row, "limit": limit, "missed": trips > limit})
    return counted


def _reads(client: redis.Redis) -> int:
    return client.info("stats")["total_reads_processed"]


def _until(monitor, name: str):
    while True:
        told = monitor.next_command()
        if told["client_type"] == "lua" or told["command"].startswith("INFO"):
            continue
        if told["command"] == f"ECHO {name}":
            return
        yield told["command"].split(" ", 1)[0]


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
        "record, JSON of 100 bytes": (_maker(shop, _order(100)), BYTES["record"]),
    }
    for kind, by, times in (("record", shop, 1.4), ("encrypted record", sealed, 1.95)):
        for name, size in (("1 kB", 1_000), ("10 kB", 10_000), ("100 kB", 100_000)):
            limit = round(times * size)
            things[f"{kind}, JSON of {name}"] = _maker(by, _order(size)), limit
            things[f"{kind}, noise of {name}"] = _maker(by, os.urandom(size)), limit
    rows = []
    with redis.Redis.from_url(url) as client:
        client.flushall()
        for name, (make, limit) in things.items():
            row = {"record": name, **_used(client, make)}
            rows.append({**row, "limit": limit, "missed": row["bytes"] > limit})
        client.flushall()
    return rows


def _maker(shop: Shop, document: bytes):
    def make() -> None:
        shop.document = document
        shop.create(str(uuid.uuid4()))

    return make


def _used(client: redis.Redis, make) -> dict:
    before = set(client.keys())
    make()
    (key,) = set(client.keys()) - before
    return {"bytes": client.memory_usage(key, samples=0), "key": key.decode()}
