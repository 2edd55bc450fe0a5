"""What happens to a run's requests, told by the library's signals and written to the database.

A worker knows only of the requests that it got itself. In the database is what all of them know,
so that it does not matter which one is asked.
"""

from __future__ import annotations

import time
from typing import Any

from blinker import NamedSignal
from flask import Flask, has_request_context, request

from flask_idempotence import (
    claimed,
    completed,
    lease_lost,
    rejected,
    released,
    replayed,
    store_failed,
    token_spent,
)

from ..database import database

LANE = "X-Lab-Lane"
"""The header in which each request of a run says which one it is."""

INSERT = "INSERT INTO lab_events (run, lane, what, detail, at) VALUES (?, ?, ?, ?, ?)"

SIGNALS = (
    claimed,
    completed,
    lease_lost,
    rejected,
    released,
    replayed,
    store_failed,
    token_spent,
)


def listen(app: Flask) -> None:
    """Write down what the guards of an application do with the requests of the lab."""
    for signal in SIGNALS:
        # Not weakly: nobody else keeps this function.
        signal.connect(receiver_of(signal), sender=app, weak=False)


def receiver_of(signal: NamedSignal) -> Any:
    """Return a function that writes this signal down."""

    def receive(_: Flask, error: Any = None, **more: Any) -> None:
        del more
        note(signal.name, getattr(error, "slug", None))

    return receive


def note(what: str, detail: str | None = None) -> int:
    """Write down what has just happened to the current request; return the event's number.

    It is 0 where nothing was written, because the request belongs to no run.
    """
    # Some signals come from the library's own thread, where there is no request.
    if not has_request_context() or LANE not in request.headers:
        return 0
    run, lane = (request.view_args or {}).get("run"), request.headers.get(LANE, type=int)
    if run is None or lane is None:
        return 0
    return database().write(INSERT, run, lane, what, detail, time.time())
