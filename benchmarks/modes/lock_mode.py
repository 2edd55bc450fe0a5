"""The lock: by the extension, by the store alone, and by hand."""

import hashlib
import json
import os

from flask import Response, abort, request
from measuring.timing import Variant
from modes.bare_stores import bare_store, look_floor
from modes.order_app import answer, application, orders, storage

from flask_idempotence import Idempotence, no_repeat_submit

INTERVAL = 5


def ours(uri: str, interval: float = INTERVAL) -> Variant:
    @no_repeat_submit(interval=interval)
    def view() -> dict:
        return answer()

    app = application("ours: lock", view, **storage(uri))
    Idempotence(app)
    return Variant("ours: no_repeat_submit", app, orders)


def floor(uri: str) -> Variant:
    """Return a view that makes the lock's claim, with a random key, and no more."""
    store = bare_store(uri)

    def view() -> dict:
        store.claim(os.urandom(16).hex(), os.urandom(16), bytes(16), INTERVAL)
        return answer()

    name = f"floor: a claim by {store.how}"
    return Variant(name, application(name, view), orders)


def repeat_floor(uri: str) -> Variant:
    """Return a view that claims a key that is taken, and has its refusal ready."""

    def claim(store, key: str) -> None:
        store.claim(key, os.urandom(16), bytes(16), 12 * INTERVAL)

    refusal = Response(b"{}\n", 409, mimetype="application/json")
    return look_floor(uri, claim, refusal, orders, "409")


def by_hand(uri: str, interval: float = INTERVAL) -> Variant:
    store = bare_store(uri)

    def view() -> dict:
        who = request.headers.get("Authorization") or request.remote_addr
        asked = [who, request.method, request.endpoint, request.get_json()]
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        key = "lock:create_order:" + hashlib.sha256(text.encode()).hexdigest()
        if store.claim(key, os.urandom(16), bytes(16), interval) != 0:
            abort(409)
        return answer()

    name = f"by hand: sha256, {store.how}"
    return Variant(name, application(name, view), orders)
