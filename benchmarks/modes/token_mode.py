"""The one-time token: by the extension, by the store alone, and by hand."""

import hashlib
import os

from flask import Response, abort, request
from itsdangerous import BadSignature, TimestampSigner
from measuring.timing import Variant
from modes.bare_stores import bare_store
from modes.order_app import HEADERS, SECRET, answer, application, environ, storage

from flask_idempotence import Idempotence, one_time_token

TOKEN_TTL = 300


def ours(uri: str) -> Variant:
    @one_time_token()
    def view() -> dict:
        return answer()

    app = application("ours: token", view, **storage(uri))
    idempotence = Idempotence(app)

    def prepare(count: int) -> list[dict]:
        with app.request_context(environ()):
            tokens = [idempotence.issue_token() for _ in range(count)]
        return [_with_token(token) for token in tokens]

    return Variant("ours: one_time_token", app, prepare)


def floor(uri: str) -> Variant:
    """Return a view that takes a token that is there, and no more."""
    store = bare_store(uri)
    keys = []

    def view() -> dict:
        store.take_token(keys.pop())
        return answer()

    def prepare(count: int) -> list[dict]:
        keys[:] = [os.urandom(16).hex() for _ in range(count)]
        store.put_tokens(keys, TOKEN_TTL)
        # The header is there as well: what Flask does with one header more is not our cost.
        return [_with_token("x" * 49) for _ in range(count)]

    name = f"floor: a token taken by {store.how}"
    return Variant(name, application(name, view), prepare)


def repeat_floor(uri: str) -> Variant:
    """Return a view that asks for a token that is not there, and has its refusal ready."""
    store = bare_store(uri)
    ready = Response(b"{}\n", 409, mimetype="application/json")

    def view() -> Response:
        store.take_token(os.urandom(16).hex())
        return ready

    def prepare(count: int) -> list[dict]:
        return [_with_token("x" * 49) for _ in range(count)]

    name = f"floor: no token taken by {store.how}"
    return Variant(name, application(name, view), prepare, replays=True, status="409")


def by_hand(uri: str) -> Variant:
    store = bare_store(uri)
    signer = TimestampSigner(SECRET, salt="token", digest_method=hashlib.sha256)

    def view() -> dict:
        try:
            unique = signer.unsign(request.headers.get("Idempotence-Token", ""), TOKEN_TTL)
        except BadSignature:
            abort(400)
        if not store.take_token(f"token:{unique.decode()}"):
            abort(409)
        return answer()

    def prepare(count: int) -> list[dict]:
        uniques = [os.urandom(16).hex() for _ in range(count)]
        store.put_tokens([f"token:{unique}" for unique in uniques], TOKEN_TTL)
        return [_with_token(signer.sign(unique).decode()) for unique in uniques]

    name = f"by hand: itsdangerous, {store.how}"
    return Variant(name, application(name, view), prepare)


def _with_token(token: str) -> dict:
    return environ({**HEADERS, "HTTP_IDEMPOTENCE_TOKEN": token})
