"""What must hold of a history when the network splits, its figures, and the table of many."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from proofs.chaos.checks import (
    Violation,
    answers_are_equal,
    at_most_once_ran_nothing_twice,
    no_key_stays_wedged,
    nobody_gets_anothers_answer,
    nothing_acknowledged_is_forgotten,
    nothing_is_lost,
    nothing_runs_before_the_lease_is_over,
    only_expected_answers_come,
)
from proofs.chaos.history import Attempt, History

SLACK = 1.5
"""Seconds that a busy machine may add to a request."""


@dataclass
class Split(History):
    """A history, the deadline of its store, and when the fault began and the clients ended."""

    deadline: float = 1.0
    struck: float = 0.0
    stopped: float = float("inf")


def no_request_exceeds_its_deadlines(history: Split) -> Iterator[Violation]:
    """A request takes no longer than its view and one deadline for each step of its guard."""
    for attempt, seconds in overhead(history):
        steps = 2 if attempt.run and not attempt.replayed else 1
        if seconds > steps * history.deadline + SLACK:
            yield Violation(attempt.operation, f"{seconds:.2f} s of its own")


def overhead(history: Split) -> Iterator[tuple[Attempt, float]]:
    """Return each attempt with its seconds less those of its view, and of its host's pauses."""
    runs = {run.attempt: run for run in history.runs if run.ended}
    for attempt in history.attempts:
        seconds = attempt.received - attempt.sent
        if run := runs.get(attempt.id):
            seconds -= run.ended - run.begun
        for stall in history.stalls:
            if stall.pid == attempt.pid:
                common = min(attempt.received, stall.ended) - max(attempt.sent, stall.begun)
                seconds -= max(0.0, common)
        yield attempt, seconds


NOT_PROMISED = (
    at_most_once_ran_nothing_twice,
    nothing_runs_before_the_lease_is_over,
    nothing_acknowledged_is_forgotten,
)
"""Checks that an asynchronous failover may fail: without `wait_replicas` they are counted."""

PROMISED = (
    nothing_is_lost,
    nobody_gets_anothers_answer,
    answers_are_equal,
    no_key_stays_wedged,
    only_expected_answers_come,
    no_request_exceeds_its_deadlines,
)
CHECKS = (*NOT_PROMISED, *PROMISED)

STOPPING = 1.0
"""Seconds before the clients stop from which on a gap says nothing."""


def figures_of(history: Split) -> dict[str, int | float]:
    """Count what a history shows, by the columns of the table; floats are seconds."""
    attempts = history.attempts
    told = [attempt for attempt in attempts if attempt.run]
    of_host = [[a for a in told if a.pid == pid] for pid in {a.pid for a in attempts}]
    unknown = {attempt.operation for attempt in attempts if attempt.slug == "outcome-unknown"}
    twice = [runs[0].mode for runs in history.runs_of.values() if len(runs) > 1]
    return {
        "requests": len(attempts),
        "runs": len(history.runs),
        "503": sum(attempt.slug == "store-unavailable" for attempt in attempts),
        "unknown": len(unknown - set(history.runs_of)),
        "twice, at-most-once": len([*at_most_once_ran_nothing_twice(history)]),
        "twice, at-least-once": twice.count("least"),
        "lost records": len(
            {found.operation for found in nothing_acknowledged_is_forgotten(history)}
        ),
        "no run anywhere": _longest_gap(history, [a for a in told if a.stored and not a.replayed]),
        "a host without answers": max(_longest_gap(history, each) for each in of_host),
        "slowest": max(seconds for _, seconds in overhead(history)),
    }


def _longest_gap(history: Split, attempts: list) -> float:
    ends = sorted(a.received for a in attempts if a.received > history.struck)
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
