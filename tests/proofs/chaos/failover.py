"""Failovers under load, over HTTP: how much of what was acknowledged runs a second time."""

import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from helpers.servers.failover import CUT_FOR, fail
from helpers.servers.processes import until
from helpers.servers.topologies import SentinelGroup

from .history import Run, runs_in
from .journal import read_journal
from .load import Load
from .scenario import application

LEASE = 30.0


@dataclass
class Counts:
    """What came of failovers.

    Attributes:
        acknowledged: operations whose client was told of their success.
        lost: those of them that ran again when they were sent once more: their claim was lost.
        twice: operations that ran twice in all, with those whose client repeated by itself.
        unknown: operations that were answered `outcome-unknown` although they never ran.
        refused: requests that got 503.
        away: seconds from the failure until an operation was acknowledged again, at most.
    """

    acknowledged: int = 0
    lost: int = 0
    twice: int = 0
    unknown: int = 0
    refused: int = 0
    away: float = 0.0

    def __add__(self, other: "Counts") -> "Counts":
        summed = {name: getattr(self, name) + getattr(other, name) for name in vars(self)}
        return Counts(**{**summed, "away": max(self.away, other.away)})


def fail_over_http(
    directory: Path, *, wait_replicas: int, cut_off: int, seconds: float = 2
) -> Counts:
    """Kill the primary while clients send operations at-most-once, then send each once more.

    Args:
        directory: for the journal.
        wait_replicas: as the store's option.
        cut_off: as for `helpers.servers.failover.fail_over`.
        seconds: of load before anything happens, and after all is well again.
    """
    with SentinelGroup() as group:
        url = f"{group.url}?wait_replicas={wait_replicas}"
        with application(directory, url, LEASE) as server:
            load = Load(server.port, seed=0, long_work=0.0, modes={"once": 1})
            load.start()
            try:
                time.sleep(seconds)
                died = fail(group, cut_off, while_cut=partial(_let_some_succeed, load))
                back = _time_of_success(load, died)
                time.sleep(seconds)
            finally:
                load.end(within=LEASE + 10)
            before = {run.id for run in runs_in(read_journal(directory))}
            load.probe()
    return _count(load, runs_in(read_journal(directory)), before, back - died)


def _let_some_succeed(load: Load) -> None:
    begun = time.monotonic()
    time.sleep(CUT_FOR)
    until(lambda: sum(a.sent > begun and a.status == 201 for a in load.attempts[:]) > 4, 3)


def _time_of_success(load: Load, died: float) -> float:
    def successes():
        return [a.received for a in load.attempts[:] if a.sent > died and a.status == 201]

    if not until(successes, 60):
        raise RuntimeError("Nothing was acknowledged after the failover.")
    return min(successes())


def _count(load: Load, runs: list[Run], before: set[str], away: float) -> Counts:
    acknowledged = {a.operation for a in load.attempts if a.status == 201 and not a.probe}
    again = {run.operation for run in runs if run.id not in before}
    how_often = Counter(run.operation for run in runs)
    unknown = {a.operation for a in load.attempts if a.slug == "outcome-unknown"}
    return Counts(
        acknowledged=len(acknowledged),
        lost=len(acknowledged & again),
        twice=sum(count > 1 for count in how_often.values()),
        unknown=len(unknown - set(how_often)),
        refused=sum(a.slug == "store-unavailable" for a in load.attempts),
        away=round(away, 1),
    )
