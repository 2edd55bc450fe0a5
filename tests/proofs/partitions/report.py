"""The figures of a history, and the table of many."""

from itertools import pairwise

from .checks import (
    at_most_once_runs_nothing_twice,
    nothing_acknowledged_is_forgotten,
    overhead,
)
from .history import AT_LEAST_ONCE, RAN, REPLAYED, UNAVAILABLE, UNKNOWN, History, mode_of
from .hosts import APPS

STOPPING = 1.0
"""Seconds before the clients stop from which on a gap says nothing."""


def figures_of(history: History) -> dict[str, int | float]:
    """Count what a history shows, by the columns of the table; floats are seconds."""
    effects, requests = history.effects_by_key(), history.requests
    again = [key for key, runs in effects.items() if len(runs) > 1]
    unknown = {request.key for request in requests if request.answer == UNKNOWN}
    return {
        "requests": len(requests),
        "runs": len(history.effects),
        "503": sum(request.answer == UNAVAILABLE for request in requests),
        "unknown": len(unknown - set(effects)),
        "twice, at-most-once": sum(1 for _ in at_most_once_runs_nothing_twice(history)),
        "twice, at-least-once": sum(mode_of(key) == AT_LEAST_ONCE for key in again),
        "lost records": sum(1 for _ in nothing_acknowledged_is_forgotten(history)),
        "no run anywhere": _longest_gap(history, [r for r in requests if r.is_acknowledged]),
        "a host without answers": max(
            _longest_gap(
                history, [r for r in requests if r.host == host and r.answer in (RAN, REPLAYED)]
            )
            for host in APPS
        ),
        "slowest": max(seconds for _, seconds in overhead(history)),
    }


def _longest_gap(history: History, requests: list) -> float:
    ends = sorted(r.end for r in requests if r.end > history.struck)
    # Clients that stop make a gap, too: after it there are probes only.
    begun = history.stopped - STOPPING
    return max((b - a for a, b in pairwise([history.struck, *ends]) if a < begun), default=0.0)


def head(figures: dict[str, int | float]) -> str:
    return line(["", "waited for", *figures]) + "\n" + line(["---"] * (len(figures) + 2))


def row(title: str, safety: str, figures: dict[str, int | float]) -> str:
    shown = (f"{f:.1f} s" if isinstance(f, float) else f for f in figures.values())
    return line([title, safety, *shown])


def line(cells) -> str:
    return f"| {' | '.join(map(str, cells))} |"
