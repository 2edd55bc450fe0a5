"""A run of the lab: what was asked for, and what came of it, all of it in the database."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flask import abort

from ..database import database

MODES = {
    "lock": "Lock: a repeat is refused",
    "token": "Token: one for all requests, spent once",
    "key": "Key: a repeat asks again, and gets the first response",
    "wait": "Key, waiting: a repeat is kept waiting for the first response",
    "none": "No guard, for comparison",
}
FAILURES = {
    "none": "never",
    "status": "with status 500",
    "exception": "with an exception",
    "success": 'with "success": false',
}
MOST_REQUESTS = 200
LONGEST_DELAY = 3000
"""Milliseconds."""

PATIENCE = 90
"""Seconds after which a run is over in any case."""


@dataclass(frozen=True)
class Run:
    """What was asked for; times are seconds, moments those of the clock on the wall."""

    number: int
    mode: str
    requests: int
    delay: float
    failure: str
    only_first: bool
    asked: float
    began: float | None
    ended: float | None

    @property
    def is_over(self) -> bool:
        """Whether nothing will come after what is in the database."""
        return self.ended is not None or time.time() > self.asked + PATIENCE + 10


def create(form: Mapping[str, str]) -> Run:
    """Write down what somebody wants, or answer with 400."""
    mode, failure = form.get("mode"), form.get("failure", "none")
    requests = whole_number(form.get("requests"), 1, MOST_REQUESTS)
    delay = whole_number(form.get("delay"), 0, LONGEST_DELAY)
    if mode not in MODES or failure not in FAILURES or requests is None or delay is None:
        abort(
            400,
            f"A run has a mode, 1 to {MOST_REQUESTS} requests, a delay of 0 to {LONGEST_DELAY} "
            "milliseconds, and a failure.",
        )
    number = database().write(
        "INSERT INTO lab_runs (mode, requests, delay, failure, only_first, asked) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        *(mode, requests, delay / 1000, failure, "only_first" in form, time.time()),
    )
    return find(number)


def find(number: int) -> Run:
    """Return a run, or answer the request with 404."""
    rows = database().read("SELECT * FROM lab_runs WHERE number = ?", number)
    return Run(**rows[0]) if rows else abort(404)


def truth(run: Run) -> dict[str, Any]:
    """Return how often the side effect happened, and how often everything else did."""
    counted = database().read(
        "SELECT what, count(*) AS count FROM lab_events WHERE run = ? GROUP BY what", run.number
    )
    effects = database().value("SELECT count(*) FROM lab_effects WHERE run = ?", run.number)
    return {"effects": effects, "counts": {row["what"]: row["count"] for row in counted}}


def whole_number(text: str | None, least: int, most: int) -> int | None:
    """Return the number that a text says, or None if it says none in these bounds."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return None
    return int(text) if least <= int(text) <= most else None
