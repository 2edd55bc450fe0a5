"""A history: the requests of all clients and the effects of all views, each with begin and end.

All times are of CLOCK_MONOTONIC, which the hosts share. Workers write them to one file, which is
outside the network.
"""

import math
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

from helpers.journal import Journal, read_journal

RAN = "ran"
REPLAYED = "replayed"
IN_PROGRESS = "key-in-progress"
UNKNOWN = "outcome-unknown"
UNAVAILABLE = "store-unavailable"

AT_MOST_ONCE = "at-most-once"
AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True)
class Request:
    """One request; its answer is one of the constants above, or what else it was."""

    key: str
    host: str
    begin: float
    end: float
    answer: str
    run: str | None = None
    stored: bool = True

    @property
    def is_final(self) -> bool:
        """Whether a client has no reason to repeat it."""
        return self.answer in (RAN, REPLAYED, UNKNOWN)

    @property
    def is_acknowledged(self) -> bool:
        """Whether it is a run whose completion the store has confirmed."""
        return self.answer == RAN and self.stored


@dataclass(frozen=True)
class Effect:
    """One run of a view; `end` is None where it was cut short, `asked` when its request began."""

    key: str
    host: str
    run: str
    asked: float
    begin: float
    end: float | None = None


@dataclass
class History:
    """What happened, and the settings that it is judged by."""

    requests: list[Request]
    effects: list[Effect]
    lease: float = 3.0
    deadline: float = 1.0
    struck: float = 0.0
    healed: float = 0.0
    stopped: float = math.inf
    paused: list[tuple[str, float, float]] = field(default_factory=list)

    def requests_by_key(self) -> dict[str, list[Request]]:
        return _by_key(self.requests)

    def effects_by_key(self) -> dict[str, list[Effect]]:
        return _by_key(self.effects)


def _by_key(events: list) -> dict[str, list]:
    found = defaultdict(list)
    for event in sorted(events, key=lambda each: each.begin):
        found[event.key].append(event)
    return found


def mode_of(key: str) -> str:
    """Return the guarantee of a key's route, with which the key begins."""
    return key.partition("/")[0]


class Effects:
    """The effect of a view: two lines outside the network, one at its begin and one at its end."""

    def __init__(self, journal: Journal, host: str):
        self._journal, self._host = journal, host

    def run(self, key: str, run: str, asked: float, seconds: float) -> None:
        self._journal.note("begun", key=key, host=self._host, run=run, asked=asked)
        time.sleep(seconds)
        self._journal.note("ended", run=run)


def read_history(directory: Path) -> History:
    requests, effects = [], {}
    for line in read_journal(directory):
        event, at, _ = line.pop("event"), line.pop("at"), line.pop("pid")
        if event == "request":
            requests.append(Request(**line))
        elif event == "begun":
            effects[line["run"]] = Effect(**line, begin=at)
        else:
            effects[line["run"]] = replace(effects[line["run"]], end=at)
    return History(requests, list(effects.values()))
