"""Write the library's signals for the requests of a run to the database.

Each worker sees its own requests only. The database has the events of all workers, so that every
worker can answer for the whole run.
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
from . import runs

LANE = "X-Lab-Lane"
"""The header with the number of a request in its run."""

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
    """Record the signals of an application's guards for requests of the lab."""
    for signal in SIGNALS:
        # weak=False: there is no other reference to this function.
        signal.connect(receiver_of(signal), sender=app, weak=False)


def receiver_of(signal: NamedSignal) -> Any:
    """Return a receiver that records a signal."""

    def receive(_: Flask, error: Any = None, **more: Any) -> None:
        del more
        write_event(signal.name, getattr(error, "slug", None))

    return receive


def lane_of_request() -> int | None:
    """Return the number of the current request in its run."""
    return runs.whole_number(request.headers.get(LANE), 0, runs.MOST_REQUESTS)


def write_event(what: str, detail: str | None = None) -> int:
    """Record an event of the current request, and return the event's number.

    Return 0 for a request that belongs to no run.
    """
    # The library sends some signals from a thread of its own, outside of any request.
    if not has_request_context() or LANE not in request.headers:
        return 0
    run, lane = (request.view_args or {}).get("run"), lane_of_request()
    if run is None or lane is None:
        return 0
    return database().write(INSERT, run, lane, what, detail, time.time())
