"""A run in a few words: a server, its clients, and a sample again and again."""

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import psutil
from helpers.servers.processes import Gunicorn, environment

from .load import Load
from .stores import MEBIBYTE, open_server

WORKERS, THREADS = 2, 16
LEASE = 6.0
RATE = 120.0
"""Requests a second."""

EVERY = 2.0
"""Seconds between two samples; less in a short run."""

BURSTS = 10
"""At most, until all threads of both workers have begun."""

SAMPLES = 100


@dataclass
class Samples:
    began: float = 0.0
    ended: float = 0.0
    series: dict = field(default_factory=lambda: defaultdict(list))
    problems: Counter = field(default_factory=Counter)
    late: float = 0.0


def figures_of(pid):
    """Return what a process has; USS are the bytes that no other process shares."""
    process = psutil.Process(pid)
    memory = process.memory_full_info()
    return {
        "USS, MiB": memory.uss / MEBIBYTE,
        "RSS, MiB": memory.rss / MEBIBYTE,
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
    }


def play(plan, directory):
    """Run the load, and sample.

    Records live much shorter than the run, so that as many expire as are made, in the parts of
    the run that are compared.
    """
    with open_server(plan.store, directory) as store, server_of(plan, store.url) as server:
        samples = Samples()
        load = Load(server, RATE, LEASE)
        workers = psutil.Process(server.pid).children()
        for _ in range(BURSTS):
            store.hold()
            load.burst()
            if all(worker.num_threads() > THREADS for worker in workers):
                break
        load.start()
        samples.began = time.monotonic()
        seconds = 60 * plan.minutes
        try:
            while (now := time.monotonic()) < samples.began + seconds:
                values = store.sample() | of_processes(server.pid, workers)
                for name, value in values.items():
                    samples.series[name].append((time.monotonic(), value))
                time.sleep(max(0.0, now + min(EVERY, seconds / SAMPLES) - time.monotonic()))
            samples.ended = time.monotonic()
        finally:
            load.end()
        if psutil.Process(server.pid).children() != workers:
            load.problems["a worker was replaced"] += 1
        # Warnings and errors of the server, of which there must be none.
        lines = filter(str.strip, server.log.splitlines())
        load.problems.update(line for line in lines if not line.startswith("worker ready:"))
    samples.series["guarded ÷ unguarded, median"] = load.ratios
    samples.problems, samples.late = load.problems, load.late / max(1, load.requests)
    return samples


def server_of(plan, url):
    settings = {
        "storage_options": '{"deadline": 5}',  # a machine that stalls is no outage
        "lease": LEASE,
        "lock_interval": LEASE,
        "key_ttl": plan.ttl,
        "key_required": "true",
        "token_ttl": plan.ttl,
    }
    return Gunicorn(
        "proofs.endurance.application:app",
        workers=WORKERS,
        threads=THREADS,
        env=environment(url, **settings, LEAKS=" ".join(plan.leak)),
        extra=("--timeout=120", "--log-level=warning"),
    )


def of_processes(master, workers):
    values = {
        "CPU of the clients": time.process_time(),
        "CPU of the workers": sum(sum(worker.cpu_times()[:2]) for worker in workers),
    }
    named = {"master": master} | {f"worker {n}": each.pid for n, each in enumerate(workers, 1)}
    for name, pid in named.items():
        values |= {f"{name}, {what}": value for what, value in figures_of(pid).items()}
    return values
