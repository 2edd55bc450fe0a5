"""Twenty minutes in a few words: a server, its clients, and a sample every two seconds."""

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helpers.repository import ROOT
from helpers.servers.processes import Gunicorn

from .load import Load
from .processes import children_of, usage_of
from .stores import open_server

WORKERS, THREADS = 2, 16
EVERY = 2.0
"""Seconds between two samples; less in a short run."""

BURSTS = 10
"""At most, until all threads of both workers have begun."""

SAMPLES = 100
"""In a short run."""


@dataclass(frozen=True)
class Plan:
    """What is run.

    Records live much shorter than the run, so that as many expire as are made, in the parts of
    the run that are compared.
    """

    store: str
    seconds: float
    rate: float = 120.0
    lease: float = 6.0
    ttl: float = 60.0
    leaks: Sequence[str] = ()


@dataclass
class Samples:
    """What was measured; series, times and ratios are pairs of a moment and a value."""

    title: str
    ttl: float = 0.0
    began: float = 0.0
    ended: float = 0.0
    series: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    timing: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    ratios: list[tuple[float, float]] = field(default_factory=list)
    problems: dict[str, int] = field(default_factory=dict)
    late: float = 0.0

    def note(self, values: dict[str, float]) -> None:
        now = time.monotonic()
        for name, value in values.items():
            self.series[name].append((now, value))


def play(plan: Plan, directory: Path, report: Callable[[str], None]) -> Samples:
    """Run the load, and sample."""
    with open_server(plan.store, directory) as store, server_of(plan, store.url) as server:
        samples = Samples(store.version, plan.ttl)
        load = Load(server.port, plan.rate)
        workers = children_of(server.pid)
        for _ in range(BURSTS):
            store.hold()
            load.burst()
            if all(usage_of(worker).threads > THREADS for worker in workers):
                break
        load.start()
        samples.began = time.monotonic()
        try:
            every, reported = min(EVERY, plan.seconds / SAMPLES), 0.0
            while (now := time.monotonic()) < samples.began + plan.seconds:
                samples.note(store.sample() | of_processes(server.pid, workers, load))
                if now > samples.began + reported + 60:
                    reported += 60
                    report(line_of(samples, load))
                time.sleep(max(0.0, now + every - time.monotonic()))
            samples.ended = time.monotonic()
        finally:
            load.end()
        if children_of(server.pid) != workers:
            load.problems["a worker was replaced"] += 1
        load.problems.update(line for line in server.log.splitlines() if is_trouble(line))
    samples.timing, samples.ratios = load.timing, load.ratios
    samples.problems = dict(load.problems)
    samples.late = load.late / max(1, sum(map(len, load.timing.values())))
    return samples


def server_of(plan: Plan, url: str) -> Gunicorn:
    settings = {"STORE": url, "LEASE": plan.lease, "TTL": plan.ttl, "LEAKS": " ".join(plan.leaks)}
    return Gunicorn(
        "proofs.endurance.application:app",
        workers=WORKERS,
        threads=THREADS,
        env={name: str(value) for name, value in settings.items()},
        cwd=ROOT / "tests",
        extra=("--timeout=120", "--keep-alive=75", "--log-level=warning"),
    )


def of_processes(master: int, workers: list[int], load: Load) -> dict[str, float]:
    found = {"master": usage_of(master)}
    found |= {f"worker {number}": usage_of(pid) for number, pid in enumerate(workers, 1)}
    values = {}
    for name, usage in found.items():
        values[f"{name} USS"] = usage.uss
        values[f"{name} RSS"] = usage.rss
        values[f"{name} threads"] = usage.threads
        values[f"{name} descriptors"] = usage.descriptors
    values["CPU of the workers"] = sum(
        usage.cpu for name, usage in found.items() if name != "master"
    )
    values["CPU of the clients"] = time.process_time()
    values["requests"] = load.requests
    return values


def is_trouble(line: str) -> bool:
    """Whether a line of the server's log is a warning or an error, of which there must be none."""
    return line.strip() != "" and not line.startswith("worker ready:")


def line_of(samples: Samples, load: Load) -> str:
    last = {name: values[-1][1] for name, values in samples.series.items()}
    shown = [f"worker {n} {what}" for what in ("USS", "threads") for n in range(1, WORKERS + 1)]
    return ", ".join(
        [
            f"{(time.monotonic() - samples.began) / 60:4.1f} min",
            f"load {os.getloadavg()[0]:.1f}",
            *(f"{name}: {last.get(name, 0):.0f}" for name in ("requests", *shown, "keys")),
            f"problems: {dict(load.problems) or 'none'}",
        ]
    )


def to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
