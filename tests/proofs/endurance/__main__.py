"""Run for long, and say what grew. Each prints a table; the exit code is 1 if a limit was missed.

uv run --directory tests python -m proofs.endurance soak redis    # twenty minutes of mixed load
uv run --directory tests python -m proofs.endurance soak postgresql --minutes 5
uv run --directory tests python -m proofs.endurance keys memory   # 10^6 distinct keys
uv run --directory tests python -m proofs.endurance leases redis  # 10,000 leases at once
uv run --directory tests python -m proofs.endurance forks redis   # 1,000 forks
"""

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from . import forks, keys, leases
from .lines import Line, missed_in, table_of
from .soak import Plan, play, to_stderr
from .stores import STORES
from .verdict import Limits, report_of, shortest_run


def soak(given) -> list[str]:
    plan = Plan(
        given.store,
        60 * given.minutes,
        rate=given.rate,
        lease=given.lease,
        ttl=given.ttl,
        leaks=given.leak,
    )
    with tempfile.TemporaryDirectory() as directory:
        samples = play(plan, Path(directory), to_stderr)
    limits = Limits(given.limit / 100, given.store_limit / 100, given.time_limit / 100)
    table, faults = report_of(samples, limits)
    requests = sum(map(len, samples.timing.values()))
    sys.stdout.write(f"{samples.title}: {requests} requests in {given.minutes:g} minutes\n")
    sys.stdout.write(f"{table}\n")
    if given.samples:
        Path(given.samples).write_text(json.dumps(samples.__dict__))
    return faults


def of_keys(given) -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        marks, statuses = keys.play(
            given.store, given.count, Path(directory), to_stderr, leak=given.leak
        )
    sys.stdout.write(f"{given.store}: {given.count} keys; {dict(statuses)}\n")
    for mark in marks:
        sys.stdout.write(f"| {' | '.join(f'{value:.7g}' for value in mark.values())} |\n")
    return show(keys.lines_of(marks, given.limit / 100), "at a tenth")


def of_leases(given) -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        found = leases.play(
            given.store,
            given.count,
            Path(directory),
            to_stderr,
            lease=given.lease,
            seconds=given.seconds,
        )
    sys.stdout.write(f"{given.store}\n{leases.table_of(found, given.lease)}\n")
    return leases.faults_of(found, given.lease)


def of_forks(given) -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        found = forks.play(given.store, given.count, Path(directory), to_stderr)
    sys.stdout.write(f"{given.store}: {found.forked} forks\n")
    missed = show(forks.lines_of(found, given.limit / 100), "at a tenth")
    return forks.faults_of(found) + missed


def show(lines: list[Line], early: str) -> list[str]:
    sys.stdout.write(table_of(lines, early, "end") + "\n")
    return missed_in(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    runs = parser.add_subparsers(required=True)
    of_soak = runs.add_parser("soak", help="mixed load on two workers")
    of_soak.set_defaults(run=soak)
    of_soak.add_argument("store", choices=STORES)
    of_soak.add_argument("--minutes", type=float, default=20.0)
    of_soak.add_argument("--rate", type=float, default=120.0, help="requests a second")
    of_soak.add_argument("--ttl", type=float, default=60.0, help="seconds a record is kept")
    of_soak.add_argument("--lease", type=float, default=6.0, help="seconds of a claim")
    of_soak.add_argument("--limit", type=float, default=3.0, help="percent of growth")
    of_soak.add_argument("--store-limit", type=float, default=3.0, help="percent, in the store")
    of_soak.add_argument("--time-limit", type=float, default=3.0, help="percent, of times")
    of_soak.add_argument("--leak", nargs="*", default=(), help="plant some: memory, time, ...")
    of_soak.add_argument("--samples", help="file for all samples, as JSON")
    of = runs.add_parser("keys", help="distinct keys through one process")
    of.set_defaults(run=of_keys)
    of.add_argument("store", choices=keys.KINDS)
    of.add_argument("--count", type=int, default=1_000_000)
    of.add_argument("--limit", type=float, default=3.0, help="percent of growth")
    of.add_argument("--leak", action="store_true", help="plant one")
    of = runs.add_parser("leases", help="leases at once in the keeper")
    of.set_defaults(run=of_leases)
    of.add_argument("store", choices=STORES)
    of.add_argument("--count", type=int, default=10_000)
    of.add_argument("--lease", type=float, default=30.0, help="seconds")
    of.add_argument("--seconds", type=float, default=60.0)
    of = runs.add_parser("forks", help="forks of a process that serves")
    of.set_defaults(run=of_forks)
    of.add_argument("store", choices=STORES)
    of.add_argument("--count", type=int, default=1000)
    of.add_argument("--limit", type=float, default=3.0, help="percent of growth")
    given = parser.parse_args()
    if given.run is soak and 60 * given.minutes < shortest_run(given.ttl):
        parser.error(
            f"--minutes: with records of {given.ttl:g} seconds, at least "
            f"{shortest_run(given.ttl) / 60:.2g}, or their number is not in balance"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are ended, too
    faults = given.run(given)
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    sys.stdout.write("FAILED\n" if faults else "ok\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
