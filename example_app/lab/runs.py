"""A run of the lab: its settings and its outcome, both in the database."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flask import abort

from ..database import database
from ..languages import gettext

MODES = {
    "lock": ("Lock", "Duplicates are refused."),
    "token": ("Token", "All requests carry the same token; one of them spends it."),
    "key": ("Key", "Duplicates retry, and get the first response."),
    "wait": ("Key with waiting", "Duplicates wait for the first response."),
    "none": ("No guard", "For comparison."),
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

NEEDS = (
    "A run needs a mode, 1 to %(requests)s requests, a delay of 0 to %(delay)s milliseconds and a "
    "kind of failure."
)
PATIENCE = 90
"""Seconds until the client of a run gives up."""


VERDICTS = (
    "%(sent)s placed no order.",
    "%(sent)s placed one order.",
    "%(sent)s placed %(effects)s orders: %(excess)s too many.",
)
"""By the number of orders."""


@dataclass(frozen=True)
class Run:
    """The settings of a run. Times are in seconds, moments in Unix time."""

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
        """Whether the database has all events of the run."""
        return self.ended is not None or time.time() > self.asked + PATIENCE + 10


def create(form: Mapping[str, str]) -> Run:
    """Create a run from the form, or abort with 400."""
    mode, failure = form.get("mode"), form.get("failure", "none")
    requests = whole_number(form.get("requests"), 1, MOST_REQUESTS)
    delay = whole_number(form.get("delay"), 0, LONGEST_DELAY)
    if mode not in MODES or failure not in FAILURES or requests is None or delay is None:
        abort(400, gettext(NEEDS) % {"requests": MOST_REQUESTS, "delay": LONGEST_DELAY})
    number = database().write(
        "INSERT INTO lab_runs (mode, requests, delay, failure, only_first, asked) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        *(mode, requests, delay / 1000, failure, "only_first" in form, time.time()),
    )
    return find(number)


def find(number: int) -> Run:
    """Return a run, or abort with 404."""
    rows = database().read("SELECT * FROM lab_runs WHERE number = ?", number)
    return Run(**rows[0]) if rows else abort(404)


def truth(run: Run) -> dict[str, Any]:
    """Count the orders and the events of a run, with a verdict."""
    counted = database().read(
        "SELECT what, count(*) AS count FROM lab_events WHERE run = ? GROUP BY what", run.number
    )
    effects = database().value("SELECT count(*) FROM lab_effects WHERE run = ?", run.number)
    return {
        "effects": effects,
        "counts": {row["what"]: row["count"] for row in counted},
        "outcome": ("neutral", "right")[effects] if effects < 2 else "wrong",
        "verdict": verdict(run.requests, effects),
    }


def verdict(requests: int, effects: int) -> str:
    """Return the outcome of a run as a sentence."""
    sent = gettext("1 request" if requests == 1 else "%(count)s requests") % {"count": requests}
    values = {"sent": sent, "effects": effects, "excess": effects - 1}
    return gettext(VERDICTS[min(effects, 2)]) % values


def whole_number(text: str | None, least: int, most: int) -> int | None:
    """Parse a whole number, or return None for another text or a number out of bounds."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return None
    return int(text) if least <= int(text) <= most else None
