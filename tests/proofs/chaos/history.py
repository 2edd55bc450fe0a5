"""What happened: every attempt of every client, every run of a view, every fault.

Here and in `proofs.partitions`. An operation is named by its mode, its number and its user; all
times are of the monotonic clock, which the processes of one machine share.

The application writes down each run of a view in a journal, outside its store. A line is one
write to a file that is open for appending, so lines of several processes do not mix, and what was
written outlives a SIGKILL of its writer.
"""

import json
import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

KEY_MODES = ("once", "least", "patient")
KILLED = "worker killed"
KILLED_ITSELF = "worker killed in its view"
EXITED = "worker ended by a view's SystemExit"
STOPPED = "worker stopped"
WORKER_FAULTS = (KILLED, KILLED_ITSELF, EXITED, STOPPED)


class OfAnOperation:
    @property
    def mode(self) -> str:
        return self.operation.partition("/")[0]


@dataclass(frozen=True)
class Attempt(OfAnOperation):
    """A request of a client (process `pid`), and its answer, if any.

    A `stolen` one has another user's token; a `probe` is sent when all is calm again.
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
    pid: int = 0

    @property
    def run(self) -> str | None:
        return self.body.get("run") if self.status == 201 else None

    @property
    def is_settled(self) -> bool:
        """Whether its key has a response, or never will."""
        return self.status == 201 or self.replayed or self.slug == "outcome-unknown"


def what_is_told(status: int, headers, text: str) -> dict:
    told = json.loads(text) if headers.get("Content-Type") == "application/json" else {}
    return {
        "status": status,
        "slug": headers.get("Idempotence-Refusal", ""),
        "body": told if "run" in told else {},
        "replayed": headers.get("Idempotent-Replayed") == "true",
        "stored": headers.get("Idempotent-Stored") != "false",
    }


@dataclass
class Run(OfAnOperation):
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
    faults: list[Fault] = field(default_factory=list)
    stalls: list[Fault] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    lease: float = 3.0
    interval: float = 2.0
    deadline: float = 1.0

    @cached_property
    def attempts_of(self) -> dict[str, list[Attempt]]:
        return _grouped(sorted(self.attempts, key=lambda attempt: attempt.sent))

    @cached_property
    def runs_of(self) -> dict[str, list[Run]]:
        return _grouped(sorted(self.runs, key=lambda run: run.begun))

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


LOOK_EVERY = 0.1
"""Seconds between two looks at the clock, by which a process notices that it stood still."""

STANDSTILL = 0.3
"""Seconds from which on a standstill is written down."""


class Journal:
    def __init__(self, directory: Path):
        self._directory = directory
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(directory / "journal", flags, 0o600)

    def note(self, event, **told) -> None:
        line = {"event": event, "at": time.monotonic(), "pid": os.getpid(), **told}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def ordinal(self, operation: str) -> int:
        """Count one more run of an operation, and return which one it is, from 1."""
        with (self._directory / operation.replace("/", "-")).open("ab", buffering=0) as file:
            file.write(b"x")
            return file.tell()

    def watch_for_standstills(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            before = time.monotonic()
            time.sleep(LOOK_EVERY)
            if time.monotonic() > before + LOOK_EVERY + STANDSTILL:
                self.note("stall", since=before)


ENDS = {"ended": "success", "failed": "failure", "exits": "exit", "kills itself": "kill"}
DEATHS = {"kills itself": KILLED_ITSELF, "exits": EXITED}


def history_in(directory: Path) -> History:
    attempts, runs, faults, stalls = [], {}, [], []
    whole, _, _ = (directory / "journal").read_bytes().rpartition(b"\n")
    for line in map(json.loads, whole.splitlines()):
        event, at, pid = line.pop("event"), line.pop("at"), line.pop("pid")
        if event == "attempt":
            attempts.append(Attempt(**line, pid=pid))
        elif event == "begun":
            runs[line["id"]] = Run(**line, begun=at, pid=pid)
        elif event == "stall":
            stalls.append(Fault("standstill", line["since"], at, pid))
        elif event == "effect":
            runs[line["run"]].effect = at
        else:
            runs[line["run"]].end, runs[line["run"]].ended = ENDS[event], at
            if event in DEATHS:
                faults.append(Fault(DEATHS[event], at, at, pid))
    return History(attempts, [*runs.values()], faults, stalls)
