#!/usr/bin/env python3
"""Measure the longest pause of the memory store while its claims expire.

A store of the default size is half filled with claims, which end all at the same moment, or spread
over ten seconds of its clock, while others are claimed. Each claim is timed by the processor time
of its thread, without that of the garbage collector, whose longest run is printed as well.

    uv run python benchmarks/service/expiry.py
"""

import argparse
import gc
import statistics
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from measuring.aims import Table, aim, rows_of
from measuring.command import add_report_arguments, finish, positive, quiet

from flask_idempotence import MemoryStore
from flask_idempotence.testing import FakeClock

PAUSE = 5.0
"""Milliseconds that a claim may take at most."""

SPREADS = {"all at once": 0.0, "over 10 s": 10.0}
OWNER, FINGERPRINT = bytes(16), bytes(16)
LEASE = 60.0


class Collector:
    """Takes the processor time of the garbage collector, in nanoseconds."""

    def __init__(self):
        self.spent = self.longest = self._began = 0

    def __call__(self, phase: str, _: dict) -> None:
        if phase == "start":
            self._began = time.thread_time_ns()
            return
        took = time.thread_time_ns() - self._began
        self.spent += took
        self.longest = max(self.longest, took)


def measure(keys: int, spread: float) -> dict:
    """Return the times of as many claims as expire meanwhile, in milliseconds.

    Args:
        keys: the claims that the store holds, and that are made.
        spread: the seconds over which they expire.
    """
    clock, collector = FakeClock(), Collector()
    store = MemoryStore(max_entries=2 * keys + 1, clock=clock)
    for number in range(keys):
        store.claim(f"old:{number}", OWNER, FINGERPRINT, LEASE + spread * number / keys, 0.0)
    clock.advance(LEASE)
    times = []
    gc.callbacks.append(collector)
    try:
        for number in range(keys):
            clock.advance(spread / keys)
            others, began = collector.spent, time.thread_time_ns()
            store.claim(f"new:{number}", OWNER, FINGERPRINT, LEASE, 0.0)
            times.append(time.thread_time_ns() - began - (collector.spent - others))
    finally:
        gc.callbacks.remove(collector)
    return {
        "median": statistics.median(times) / 1e6,
        "longest": max(times) / 1e6,
        "collector": collector.longest / 1e6,
    }


def main() -> int:
    """Run the benchmark from the command line; return the status to exit with."""
    parser = add_report_arguments(
        argparse.ArgumentParser(
            description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
    )
    parser.add_argument("--keys", type=positive, default=50_000, metavar="N")
    arguments = parser.parse_args()
    quiet()
    report = {}
    print(f"{arguments.keys:,} claims expire     median, µs   longest, ms   collector, ms")
    for name, spread in SPREADS.items():
        times = measure(arguments.keys, spread)
        median = f"{times['median'] * 1e3:16.2f}"
        print(f"  {name:<24} {median} {times['longest']:13.2f} {times['collector']:15.2f}")
        row = aim(f"{name}: longest claim, ms", times["longest"], PAUSE, at="memory")
        report[name] = {**times, "aims": [row]}
    return finish(report, arguments, {"a pause while claims expire": Table(rows_of(report))})


if __name__ == "__main__":
    sys.exit(main())
