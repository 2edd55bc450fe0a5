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
    """A request of a client, and its answer.

    Attributes:
        id: which one it is; the application writes it down with the run.
        operation: mode, number and user.
        sent: when it was sent, on the monotonic clock.
        received: when its answer was there, or was no longer waited for.
        status: of the answer; None for no answer.
        slug: of the problem that the answer tells of, or "".
        body: of an answer that is no problem.
        replayed: whether it is marked as a replay.
        stored: whether it is not marked as not yet stored.
        probe: whether it was sent when all was calm again.
        stolen: whether it was sent with another user's token.
    """

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
        """Of the guard."""
        return self.operation.partition("/")[0]

    @property
    def run(self) -> str | None:
        """Which run the answer is of, if it tells of a success."""
        return self.body.get("run") if self.status == 201 else None


@dataclass
class Run:
    """A run of a view, as the journal tells.

    Attributes:
        arrived: when its request was there, before anything was claimed.
        begun: when the view began.
        effect: when it had its effect, if it had.
        ended: when it ended, if it did.
        end: "success", "failure", "exit", "kill" or "", where it did not come to any.
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
        """Of the guard."""
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
        """Seconds."""
        return self.ended - self.begun


@dataclass
class History:
    """All of it.

    Attributes:
        attempts: in the order of their answers.
        runs: in the order of their beginnings.
        faults: what was done.
        stalls: standstills that the processes noticed, whatever they came from.
        given_up: operations whose clients never had a final answer.
        lease: seconds.
        interval: seconds, of the lock.
    """

    attempts: list[Attempt]
    runs: list[Run]
    faults: list[Fault]
    stalls: list[Fault] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    lease: float = 3.0
    interval: float = 2.0

    @cached_property
    def attempts_of(self) -> dict[str, list[Attempt]]:
        """By operation."""
        return _grouped(self.attempts)

    @cached_property
    def runs_of(self) -> dict[str, list[Run]]:
        """By operation."""
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
    """Return the runs that a journal tells of."""
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
    """Return the standstills that a journal tells of."""
    stalls = [line for line in lines if line["event"] == "stall"]
    return [Fault("standstill", line["since"], line["at"], line["pid"]) for line in stalls]
