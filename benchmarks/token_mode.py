"""The one-time token: by the extension, by the store alone, and by hand."""

import hashlib
import os

import redis
from flask import abort, request
from itsdangerous import BadSignature, TimestampSigner
from measuring import Variant
from shop import HEADERS, SECRET, answer, application, environ, load

from flask_idempotence import Idempotence, one_time_token

TOKEN_TTL = 300


def ours(uri: str) -> Variant:
    """Return the view behind `@one_time_token`."""

    @one_time_token()
    def view() -> dict:
        return answer()

    app = application("ours: token", view, IDEMPOTENCE_STORAGE_URI=uri)
    idempotence = Idempotence(app)

    def prepare(count: int) -> list[dict]:
        with app.request_context(environ()):
            tokens = [idempotence.issue_token() for _ in range(count)]
        return [_with_token(token) for token in tokens]

    return Variant("ours: one_time_token", app, prepare)


def floor(url: str) -> Variant:
    """Return a view that sends the token's store command, with a key that is there."""
    client = redis.Redis.from_url(url)
    script = load(client, "take_token")
    keys = []

    def view() -> dict:
        client.evalsha(script, 1, keys.pop(), b"")
        return answer()

    def prepare(count: int) -> list[dict]:
        keys[:] = [os.urandom(16).hex() for _ in range(count)]
        _store(client, keys)
        # The header is there as well: what Flask does with one header more is not our cost.
        return [_with_token("x" * 49) for _ in range(count)]

    name = "floor: one EVALSHA of take_token.lua"
    return Variant(name, application(name, view), prepare)


def by_hand(url: str) -> Variant:
    """Return the lines that a developer would write for a one-time token."""
    client = redis.Redis.from_url(url)
    script = load(client, "take_token")
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
        _store(client, [f"token:{unique}" for unique in uniques])
        return [_with_token(signer.sign(unique).decode()) for unique in uniques]

    name = "by hand: itsdangerous, EVALSHA"
    return Variant(name, application(name, view), prepare)


def _with_token(token: str) -> dict:
    return environ({**HEADERS, "HTTP_IDEMPOTENCE_TOKEN": token})


def _store(client: redis.Redis, keys: list[str]) -> None:
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.set(key, b"T", ex=TOKEN_TTL)
    pipeline.execute()
