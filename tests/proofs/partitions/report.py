"""The figures of a history, and the table of many."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from .checks import (
    at_most_once_runs_nothing_twice,
    nothing_acknowledged_is_forgotten,
    overhead,
)
from .group import APPS
from .history import AT_LEAST_ONCE, RAN, REPLAYED, UNAVAILABLE, UNKNOWN, History, mode_of

COLUMNS = (
    "waited for",
    "requests",
    "runs",
    "503",
    "unknown",
    "twice, at-most-once",
    "twice, at-least-once",
    "lost records",
    "no run anywhere",
    "a host without answers",
    "slowest",
)


STOPPING = 1.0
"""Seconds before the clients stop from which on a gap says nothing."""


@dataclass(frozen=True)
class Figures:
    """What came of one run.

    Attributes:
        requests: all requests.
        runs: views that began.
        refused: requests that got 503.
        unknown: keys that got `outcome-unknown` and never ran.
        twice: keys of the at-most-once route that ran twice.
        repeated: keys of the at-least-once route that ran twice.
        lost: acknowledged completions that were forgotten.
        away: seconds without an acknowledged run on any host, at most, since the fault began.
        host_away: seconds without a success on one application host, at most.
        slowest: seconds of the slowest request, less its view.
    """

    requests: int
    runs: int
    refused: int
    unknown: int
    twice: int
    repeated: int
    lost: int
    away: float
    host_away: float
    slowest: float


def figures_of(history: History) -> Figures:
    effects = history.effects_by_key()
    requests = history.requests
    again = [key for key, runs in effects.items() if len(runs) > 1]
    hosts = [[r for r in requests if r.host == host and _succeeded(r)] for host in APPS]
    return Figures(
        requests=len(requests),
        runs=len(history.effects),
        refused=sum(r.answer == UNAVAILABLE for r in requests),
        unknown=len({r.key for r in requests if r.answer == UNKNOWN} - set(effects)),
        twice=sum(1 for _ in at_most_once_runs_nothing_twice(history)),
        repeated=sum(mode_of(key) == AT_LEAST_ONCE for key in again),
        lost=sum(1 for _ in nothing_acknowledged_is_forgotten(history)),
        away=_longest_gap(history, [r for r in requests if r.is_acknowledged]),
        host_away=max(_longest_gap(history, of_host) for of_host in hosts),
        slowest=max(seconds for _, seconds in overhead(history)),
    )


def _succeeded(request) -> bool:
    return request.answer in (RAN, REPLAYED)


def _longest_gap(history: History, requests: list) -> float:
    ends = sorted(r.end for r in requests if r.end > history.struck)
    # Clients that stop make a gap, too: after it there are probes only.
    begun = history.stopped - STOPPING
    return max((b - a for a, b in pairwise([history.struck, *ends]) if a < begun), default=0.0)


def row(safety: str, figures: Figures) -> str:
    f = figures
    counts = (f.requests, f.runs, f.refused, f.unknown, f.twice, f.repeated, f.lost)
    seconds = (f"{value:.1f} s" for value in (f.away, f.host_away, f.slowest))
    return line([safety, *counts, *seconds])


def line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
