"""What happened: every attempt of every client, every run of a view, every fault."""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property

KEY_MODES = ("once", "least", "patient")
KILLED = "worker killed"
KILLED_ITSELF = "worker killed in its view"
EXITED = "worker ended by a view's SystemExit"
STOPPED = "worker stopped"
WORKER_FAULTS = (KILLED, KILLED_ITSELF, EXITED, STOPPED)


@dataclass(frozen=True)
class Attempt:
    """A request of a client, and its answer, if any; a `stolen` one has another user's token."""

    id: str
    operation: str
    sent: float
    received: float
    status: int | None = None
    slug: str = ""
    body: dict = field(default_factory=dict)
    replayed: bool = False
    stored: bool = True
    probe: bool = False
    stolen: bool = False

    @property
    def mode(self) -> str:
        return self.operation.partition("/")[0]

    @property
    def run(self) -> str | None:
        return self.body.get("run") if self.status == 201 else None


@dataclass
class Run:
    """A run of a view; its request had `arrived` before anything was claimed.

    `end` is "success", "failure", "exit", "kill" or "", where it did not come to any.
    """

    id: str
    operation: str
    pid: int
    attempt: str
    arrived: float
    begun: float
    effect: float | None = None
    ended: float | None = None
    end: str = ""

    @property
    def mode(self) -> str:
        return self.operation.partition("/")[0]


@dataclass(frozen=True)
class Fault:
    """Something that was done to a worker (`pid`) or to the store (None)."""

    kind: str
    begun: float
    ended: float
    pid: int | None = None

    @property
    def length(self) -> float:
        return self.ended - self.begun


@dataclass
class History:
    """All of it; processes noticed the `stalls`, and `given_up` never had a final answer."""

    attempts: list[Attempt]
    runs: list[Run]
    faults: list[Fault]
    stalls: list[Fault] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    lease: float = 3.0
    interval: float = 2.0

    @cached_property
    def attempts_of(self) -> dict[str, list[Attempt]]:
        return _grouped(self.attempts)

    @cached_property
    def runs_of(self) -> dict[str, list[Run]]:
        return _grouped(self.runs)

    @cached_property
    def standstills(self) -> list[Fault]:
        """What stopped a process: done to it, or noticed by it."""
        return [*(fault for fault in self.faults if fault.kind == STOPPED), *self.stalls]

    @cached_property
    def told_at(self) -> dict[str, float]:
        """When a client first heard of a run, by an answer that was not marked as not stored."""
        told = {}
        for attempt in self.attempts:
            if attempt.run and attempt.stored:
                told[attempt.run] = min(attempt.received, told.get(attempt.run, attempt.received))
        return told


def _grouped(items) -> dict[str, list]:
    groups = defaultdict(list)
    for item in items:
        groups[item.operation].append(item)
    return groups


ENDS = {"ended": "success", "failed": "failure", "exits": "exit", "kills itself": "kill"}


def runs_in(lines: list[dict]) -> list[Run]:
    runs = {}
    for line in lines:
        if line["event"] == "begun":
            about = {name: line[name] for name in ("operation", "pid", "attempt", "arrived")}
            runs[line["run"]] = Run(id=line["run"], begun=line["at"], **about)
        elif line["event"] == "effect":
            runs[line["run"]].effect = line["at"]
        elif end := ENDS.get(line["event"]):
            runs[line["run"]].end, runs[line["run"]].ended = end, line["at"]
    return sorted(runs.values(), key=lambda run: run.begun)


def faults_in(lines: list[dict]) -> list[Fault]:
    """Return the deaths that views brought about by themselves."""
    kinds = {"kills itself": KILLED_ITSELF, "exits": EXITED}
    deaths = [(kinds[line["event"]], line) for line in lines if line["event"] in kinds]
    return [Fault(kind, line["at"], line["at"], line["pid"]) for kind, line in deaths]


def stalls_in(lines: list[dict]) -> list[Fault]:
    stalls = [line for line in lines if line["event"] == "stall"]
    return [Fault("standstill", line["since"], line["at"], line["pid"]) for line in stalls]
