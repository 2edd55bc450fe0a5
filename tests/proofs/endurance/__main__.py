"""Run for long, and say what grew. Each prints a table; the exit code is 1 if a limit was missed.

uv run --directory tests python -m proofs.endurance soak redis    # twenty minutes of mixed load
uv run --directory tests python -m proofs.endurance soak postgresql --minutes 5
uv run --directory tests python -m proofs.endurance keys memory   # 10^6 distinct keys
uv run --directory tests python -m proofs.endurance leases redis  # 10,000 leases at once
uv run --directory tests python -m proofs.endurance forks redis   # 1,000 forks
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from . import forks, keys, leases
from .soak import play
from .stores import STORES
from .verdict import Limits, grown, report_of, shortest_run


def soak(given, directory):
    samples = play(given, directory)
    limits = Limits(given.limit / 100, given.store_limit / 100, given.time_limit / 100)
    requests = sum(map(len, samples.timing.values()))
    show(f"{samples.title}: {requests} requests in {given.minutes:g} minutes")
    return report_of(samples, limits)


def of_keys(given, directory):
    marks, statuses = keys.play(given.store, given.count, directory, leak=bool(given.leak))
    show(f"{given.store}: {given.count} keys; {dict(statuses)}")
    for mark in marks:
        show(f"| {' | '.join(f'{value:.7g}' for value in mark.values())} |")
    _, early, _, end = marks
    early = {name: early[name] for name in early if not name.startswith("keys")}
    return grown(early, end, given.limit / 100)


def of_leases(given, directory):
    rows = leases.play(given.store, given.count, directory, given.lease, given.seconds)
    marks = {None: "", True: "ok", False: "FAILED"}
    lines = [f"| {what} | {figure} | {marks[holds]} |" for what, figure, holds in rows]
    missed = [f"FAILED: {what}: {figure}" for what, figure, holds in rows if holds is False]
    return "\n".join([f"{given.store}\n| | | |\n|---|---|---|", *lines]), missed


def of_forks(given, directory):
    marks, wrong = forks.play(given.store, given.count, directory)
    show(f"{given.store}: {given.count} forks")
    faults = [f"FAILED: {what}: {some[:5]}" for what, some in wrong.items() if some]
    table, missed = grown(marks[len(marks) // 10], marks[-1], given.limit / 100)
    return table, faults + missed


def show(text):
    sys.stdout.write(f"{text}\n")


GROWTH = {"limit": 3.0}
"""In percent, as `store-limit` (what is in the store) and `time-limit` (times)."""

RUNS = {
    "soak": (
        *(soak, STORES),
        {"minutes": 20.0, "rate": 120.0, "ttl": 60.0, "lease": 6.0}
        | {**GROWTH, "store-limit": 3.0, "time-limit": 3.0},
    ),
    "keys": (of_keys, keys.KINDS, {"count": 1_000_000, **GROWTH}),
    "leases": (of_leases, STORES, {"count": 10_000, "lease": 30.0, "seconds": 60.0}),
    "forks": (of_forks, STORES, {"count": 1000, **GROWTH}),
}
"""Each run, the stores for which it is, and its options with their defaults."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    runs = parser.add_subparsers(required=True)
    for name, (run, stores, options) in RUNS.items():
        of_run = runs.add_parser(name)
        of_run.set_defaults(run=run)
        of_run.add_argument("store", choices=stores)
        for option, default in options.items():
            of_run.add_argument(f"--{option}", type=type(default), default=default)
        of_run.add_argument("--leak", nargs="*", default=(), help="plant some: memory, time, ...")
    given = parser.parse_args()
    if given.run is soak and 60 * given.minutes < shortest_run(given.ttl):
        parser.error(
            f"--minutes: with records of {given.ttl:g} seconds, at least "
            f"{shortest_run(given.ttl) / 60:.2g}, or their number is not in balance"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are ended, too
    with tempfile.TemporaryDirectory() as directory:
        table, faults = given.run(given, Path(directory))
    show(table)
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    show("FAILED" if faults else "ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
