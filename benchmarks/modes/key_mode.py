"""The idempotency key: by the extension, by the store alone, and by hand.

A first request claims its key and completes it; a replay finds the record of a first request that
was sent before, and is not timed together with it.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Callable

from flask import Flask, Response, abort, make_response, request
from measuring.timing import Prepare, Server, Variant
from modes.bare_stores import bare_store, look_floor
from modes.order_app import HEADERS, answer, application, environ, order, storage

from flask_idempotence import Idempotence, idempotent

LEASE = 30
TTL = 86400
REPLAYED = "Idempotent-Replayed"
LONGEST_KEY = 255


def keyed(body: bytes | None = None, key: str | None = None) -> dict:
    """Return a POST with a key in the form that the draft demands; each is new."""
    key = key or str(uuid.uuid4())
    return environ({**HEADERS, "HTTP_IDEMPOTENCY_KEY": f'"{key}"'}, body=body)


def first_requests(count: int) -> list[dict]:
    """Prepare so many requests, each with a new key."""
    return [keyed() for _ in range(count)]


def replays(app: Flask, make_body: Callable[[], bytes] = order) -> Prepare:
    """Return the preparation of replays, which sends the requests that they repeat."""

    def prepare(count: int) -> list[dict]:
        server = Server()
        repeats = []
        for _ in range(count):
            body, key = make_body(), str(uuid.uuid4())
            server.send(app, keyed(body, key))
            repeats.append(keyed(body, key))
        return repeats

    return prepare


def ours(uri: str, on_repeat: str = "replay") -> Variant:
    return Variant("ours: idempotent", our_application(uri, on_repeat), first_requests)


def our_replay(uri: str) -> Variant:
    app = our_application(uri)
    return Variant("ours: idempotent", app, replays(app), replays=True)


def our_application(uri: str, on_repeat: str = "replay") -> Flask:
    @idempotent(required=True, on_repeat=on_repeat)
    def view() -> dict:
        return answer()

    app = application("ours: key", view, **storage(uri))
    Idempotence(app)
    return app


def floor(uri: str) -> Variant:
    """Return a view that makes key mode's claim and record, with a random key, and no more."""
    store = bare_store(uri)
    record = bytes(60)

    def view() -> dict:
        key, owner = os.urandom(16).hex(), os.urandom(16)
        store.claim(key, owner, bytes(16), LEASE)
        answered = answer()
        store.complete(key, owner, bytes(16), record, TTL)
        return answered

    name = f"floor: a claim and a record by {store.how}"
    return Variant(name, application(name, view), first_requests)


def replay_floor(uri: str) -> Variant:
    """Return a view that reads a record from the store, and has its answer ready."""

    def complete(store, key: str) -> None:
        store.complete(key, bytes(16), bytes(16), bytes(60), TTL)

    ready = Response(b'{"order":10000000,"status":"created"}\n', mimetype="application/json")
    ready.headers[REPLAYED] = "true"
    return look_floor(uri, complete, ready, first_requests, "200")


def by_hand(uri: str, *, rejects: bool = False) -> Variant:
    store = bare_store(uri)
    name = f"by hand: sha256, two times {store.how}"
    return Variant(name, application(name, _view_by_hand(store, rejects)), first_requests)


def replay_by_hand(uri: str) -> Variant:
    store = bare_store(uri)
    name = f"by hand: sha256, {store.how}"
    app = application(name, _view_by_hand(store))
    return Variant(name, app, replays(app), replays=True)


def _view_by_hand(store, rejects: bool = False):
    def view() -> Response:
        key = request.headers.get("Idempotency-Key", "").strip('"')
        if not 0 < len(key) <= LONGEST_KEY:
            abort(400)
        who = request.headers.get("Authorization") or request.remote_addr
        name = "key:create_order:" + _sha256([who, request.method, request.endpoint, key]).hex()
        fingerprint = _sha256(request.get_json())[:16]
        owner = os.urandom(16)
        found = store.claim(name, owner, fingerprint, LEASE)
        if found != 0:
            return _answer_by_hand(found, rejects)
        try:
            response = make_response(answer())
        except Exception:
            store.release(name, owner)
            raise
        if response.status_code >= 500:
            store.release(name, owner)
        else:
            head = f"{response.status_code} {response.content_type}\n".encode()
            store.complete(name, owner, fingerprint, head + response.get_data(), TTL)
        return response

    return view


def _answer_by_hand(found: list, rejects: bool) -> Response:
    state, matches, *rest = found
    if not matches:
        abort(422)
    if state != 2 or rejects:
        abort(409)
    head, _, body = rest[0].partition(b"\n")
    status, content_type = head.decode().split(" ", 1)
    headers = {"Content-Type": content_type, REPLAYED: "true"}
    return Response(body, int(status), headers)


def _sha256(content) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()
