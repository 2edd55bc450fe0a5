"""First requests and replays of the key mode against the view without a guard; bodies."""

import json
import uuid
from collections.abc import Callable

from flask import Flask, request
from measuring.command import microseconds, row_of
from measuring.timing import DONE, Prepare, Variant, interleave, ratio
from modes.key_mode import keyed, replays
from modes.order_app import answer, application, order, storage
from reporting.stores import Stores

from flask_idempotence import Idempotence, idempotent
from flask_idempotence.stores import Store

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
ENVELOPE = 62
"""Bytes of a body around its note."""


def guarded(store: str | Store, view: Callable[[], dict] = answer) -> Flask:
    """Return an application whose view is guarded by the key mode, on a URI or a ready store."""

    @idempotent(required=True)
    def behind() -> dict:
        return view()

    at = storage(store) if isinstance(store, str) else {}
    app = application("ours: key", behind, **at)
    Idempotence(app, store=None if at else store)
    return app


def compare(
    title: str,
    app: Flask,
    requests: int,
    view: Callable[[], dict] = answer,
    body: Callable[[], bytes] = order,
) -> dict:
    """Return times and ratios of first requests and replays to the view without a guard."""
    bare = Variant("unguarded", application("plain", view), _firsts(body))
    first = Variant("first request", app, _firsts(body))
    again = Variant("replay", app, replays(app, body), replays=True)
    interleave(title, [bare, first, again], requests)
    told = {"unguarded": row_of(microseconds(bare.nanoseconds), 1)}
    for variant in (first, again):
        times = row_of(microseconds(variant.nanoseconds), 1)
        told[variant.name] = {"times": times, "ratio": row_of(ratio(variant, bare), 3)}
    return told


def _firsts(body: Callable[[], bytes]) -> Prepare:
    return lambda count: [keyed(body()) for _ in range(count)]


def bodies(stores: Stores, requests: int) -> list[dict]:
    """Measure bodies and answers of more and more bytes."""

    def echo() -> dict:
        request.environ[DONE] = True
        return request.get_json()

    rows = []
    for size in SIZES:

        def body(size: int = size) -> bytes:
            note = "x" * (size - ENVELOPE)
            return json.dumps({"order": str(uuid.uuid4()), "note": note}).encode()

        app = guarded(stores.redis.url, echo)
        count = min(requests, max(100, 20_000_000 // size))
        rows.append({"bytes": size, **compare(f"{size} bytes", app, count, echo, body)})
    return rows
