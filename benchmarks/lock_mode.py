"""The lock: by the extension, by the store alone, and by hand."""

import hashlib
import json
import os

import redis
from flask import abort, request
from measuring import Variant
from shop import answer, application, load, orders

from flask_idempotence import Idempotence, no_repeat_submit

INTERVAL = 5


def ours(uri: str, interval: float = INTERVAL) -> Variant:
    """Return the view behind `@no_repeat_submit`."""

    @no_repeat_submit(interval=interval)
    def view() -> dict:
        return answer()

    app = application("ours: lock", view, IDEMPOTENCE_STORAGE_URI=uri)
    Idempotence(app)
    return Variant("ours: no_repeat_submit", app, orders)


def floor(url: str) -> Variant:
    """Return a view that sends the lock's store command, with a random key, and no more."""
    client = redis.Redis.from_url(url)
    script = load(client, "claim")

    def view() -> dict:
        key = os.urandom(16).hex()
        client.evalsha(script, 1, key, os.urandom(16), bytes(16), INTERVAL * 1000, 0)
        return answer()

    name = "floor: one EVALSHA of claim.lua"
    return Variant(name, application(name, view), orders)


def by_hand(url: str, interval: float = INTERVAL) -> Variant:
    """Return the lines that a developer would write for a lock."""
    client = redis.Redis.from_url(url)
    script = load(client, "claim")

    def view() -> dict:
        who = request.headers.get("Authorization") or request.remote_addr
        asked = [who, request.method, request.endpoint, request.get_json()]
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        key = "lock:create_order:" + hashlib.sha256(text.encode()).hexdigest()
        if (
            client.evalsha(script, 1, key, os.urandom(16), bytes(16), round(interval * 1000), 0)
            != 0
        ):
            abort(409)
        return answer()

    name = "by hand: sha256, EVALSHA"
    return Variant(name, application(name, view), orders)
