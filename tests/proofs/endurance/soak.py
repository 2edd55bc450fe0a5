"""Twenty minutes in a few words: a server, its clients, and a sample every two seconds."""

import time
from argparse import Namespace
from collections import defaultdict
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


def play(plan: Namespace, directory: Path) -> Samples:
    """Run the load, and sample.

    Records live much shorter than the run, so that as many expire as are made, in the parts of
    the run that are compared.
    """
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
        seconds = 60 * plan.minutes
        try:
            while (now := time.monotonic()) < samples.began + seconds:
                values = store.sample() | of_processes(server.pid, workers, load)
                for name, value in values.items():
                    samples.series[name].append((time.monotonic(), value))
                time.sleep(max(0.0, now + min(EVERY, seconds / SAMPLES) - time.monotonic()))
            samples.ended = time.monotonic()
        finally:
            load.end()
        if children_of(server.pid) != workers:
            load.problems["a worker was replaced"] += 1
        load.problems.update(line for line in server.log.splitlines() if is_trouble(line))
    samples.timing, samples.ratios = load.timing, load.ratios
    samples.problems = dict(load.problems)
    samples.late = load.late / max(1, load.requests)
    return samples


def server_of(plan: Namespace, url: str) -> Gunicorn:
    settings = {"STORE": url, "LEASE": plan.lease, "TTL": plan.ttl, "LEAKS": " ".join(plan.leak)}
    return Gunicorn(
        "proofs.endurance.application:app",
        workers=WORKERS,
        threads=THREADS,
        env={name: str(value) for name, value in settings.items()},
        cwd=ROOT / "tests",
        extra=("--timeout=120", "--keep-alive=75", "--log-level=warning"),
    )


def of_processes(master: int, workers: list[int], load: Load) -> dict[str, float]:
    named = {"master": master} | {f"worker {n}": pid for n, pid in enumerate(workers, 1)}
    found = {name: usage_of(pid) for name, pid in named.items()}
    values = {"CPU of the clients": time.process_time(), "requests": load.requests}
    values["CPU of the workers"] = sum(u.cpu for name, u in found.items() if name != "master")
    for name, usage in found.items():
        values[f"{name} USS"] = usage.uss
        values[f"{name} RSS"] = usage.rss
        values[f"{name} threads"] = usage.threads
        values[f"{name} descriptors"] = usage.descriptors
    return values


def is_trouble(line: str) -> bool:
    """Whether a line of the server's log is a warning or an error, of which there must be none."""
    return line.strip() != "" and not line.startswith("worker ready:")
