"""The applications that are compared: guarded by the extension, and written without it.

Every variant is a Flask application of its own with one view, the same settings and the same
requests. The view reads the JSON body and answers with a small dict.
"""

import hashlib
import io
import itertools
import json
import os
from pathlib import Path

import redis
from flask import Flask, abort, request
from itsdangerous import BadSignature, TimestampSigner
from measuring import Variant

import flask_idempotence
from flask_idempotence import Idempotence, no_repeat_submit, one_time_token

SECRET = "benchmark-secret-0123456789abcdef"
INTERVAL = 5
TOKEN_TTL = 300
URL = "/orders"
HEADERS = {"HTTP_AUTHORIZATION": "Bearer eyJhbGciOiJIUzI1NiJ9.c3ViOjQyMTc"}
LUA = Path(flask_idempotence.__file__).parent / "stores" / "lua"

_numbers = itertools.count(10_000_000)


def environ(headers: dict[str, str] = HEADERS, *, body: bytes | None = None) -> dict:
    """Return what a WSGI server passes on of a POST; each body of about 100 bytes is new."""
    if body is None:
        order = {"order": next(_numbers), "item": "espresso machine", "quantity": 2}
        body = json.dumps({**order, "address": "12 Example Street, 12345 Town"}).encode()
    return {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": URL,
        "QUERY_STRING": "",
        "SERVER_NAME": "shop.example",
        "SERVER_PORT": "443",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "192.0.2.17",
        "HTTP_HOST": "shop.example",
        "HTTP_USER_AGENT": "benchmark/1.0",
        "HTTP_ACCEPT": "application/json",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        **headers,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


def answer() -> dict:
    """Do what every view does."""
    order = request.get_json()
    return {"order": order["order"], "status": "created"}


def application(name: str, view=answer, **settings) -> Flask:
    """Return an application with one view."""
    app = Flask(name)
    app.config.update(SECRET_KEY=SECRET, **settings)
    app.add_url_rule(URL, "create_order", view, methods=["POST"])
    return app


def plain(name: str = "Flask without a guard") -> Variant:
    """Return the view alone."""
    return Variant(name, application(name), _orders)


def _orders(count: int) -> list[dict]:
    return [environ() for _ in range(count)]


# --- the extension ---------------------------------------------------------------------------


def our_lock(uri: str) -> Variant:
    """Return the view behind `@no_repeat_submit`."""

    @no_repeat_submit(interval=INTERVAL)
    def view() -> dict:
        return answer()

    app = application("ours: lock", view, IDEMPOTENCE_STORAGE_URI=uri)
    Idempotence(app)
    return Variant("ours: no_repeat_submit", app, _orders)


def our_token(uri: str) -> Variant:
    """Return the view behind `@one_time_token`."""

    @one_time_token()
    def view() -> dict:
        return answer()

    app = application("ours: token", view, IDEMPOTENCE_STORAGE_URI=uri)
    idempotence = Idempotence(app)

    def prepare(count: int) -> list[dict]:
        with app.request_context(environ()):
            tokens = [idempotence.issue_token() for _ in range(count)]
        return [environ({**HEADERS, "HTTP_IDEMPOTENCE_TOKEN": token}) for token in tokens]

    return Variant("ours: one_time_token", app, prepare)


# --- the store alone -------------------------------------------------------------------------


def lock_floor(url: str) -> Variant:
    """Return a view that sends the lock's store command, with a random key, and no more."""
    client = redis.Redis.from_url(url)
    script = client.script_load((LUA / "claim.lua").read_text())

    def view() -> dict:
        key = os.urandom(16).hex()
        client.evalsha(script, 1, key, os.urandom(16), bytes(16), INTERVAL * 1000, 0)
        return answer()

    name = "floor: one EVALSHA of claim.lua"
    return Variant(name, application(name, view), _orders)


def token_floor(url: str) -> Variant:
    """Return a view that sends the token's store command, with a key that is there."""
    client = redis.Redis.from_url(url)
    script = client.script_load((LUA / "take_token.lua").read_text())
    keys = []

    def view() -> dict:
        client.evalsha(script, 1, keys.pop(), b"")
        return answer()

    def prepare(count: int) -> list[dict]:
        keys[:] = [os.urandom(16).hex() for _ in range(count)]
        _store_tokens(client, keys)
        # The header is there as well: what Flask does with one header more is not our cost.
        return [environ({**HEADERS, "HTTP_IDEMPOTENCE_TOKEN": "x" * 49}) for _ in range(count)]

    name = "floor: one EVALSHA of take_token.lua"
    return Variant(name, application(name, view), prepare)


def _store_tokens(client: redis.Redis, keys: list[str]) -> None:
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.set(key, b"T", ex=TOKEN_TTL)
    pipeline.execute()


# --- written by hand -------------------------------------------------------------------------


def lock_by_hand(url: str) -> Variant:
    """Return the lines that a developer would write for a lock."""
    client = redis.Redis.from_url(url)
    script = client.script_load((LUA / "claim.lua").read_text())

    def view() -> dict:
        who = request.headers.get("Authorization") or request.remote_addr
        asked = [who, request.method, request.endpoint, request.get_json()]
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        key = "lock:create_order:" + hashlib.sha256(text.encode()).hexdigest()
        if client.evalsha(script, 1, key, os.urandom(16), bytes(16), INTERVAL * 1000, 0) != 0:
            abort(409)
        return answer()

    name = "by hand: sha256, EVALSHA"
    return Variant(name, application(name, view), _orders)


def token_by_hand(url: str) -> Variant:
    """Return the lines that a developer would write for a one-time token."""
    client = redis.Redis.from_url(url)
    script = client.script_load((LUA / "take_token.lua").read_text())
    signer = TimestampSigner(SECRET, salt="token", digest_method=hashlib.sha256)

    def view() -> dict:
        try:
            unique = signer.unsign(request.headers.get("Idempotence-Token", ""), TOKEN_TTL)
        except BadSignature:
            abort(400)
        if client.evalsha(script, 1, b"token:" + unique, b"") != 1:
            abort(409)
        return answer()

    def prepare(count: int) -> list[dict]:
        uniques = [os.urandom(16).hex() for _ in range(count)]
        _store_tokens(client, [f"token:{unique}" for unique in uniques])
        tokens = [signer.sign(unique).decode() for unique in uniques]
        return [environ({**HEADERS, "HTTP_IDEMPOTENCE_TOKEN": token}) for token in tokens]

    name = "by hand: itsdangerous, EVALSHA"
    return Variant(name, application(name, view), prepare)
