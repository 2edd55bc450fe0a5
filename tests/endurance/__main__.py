"""Run for long, and say what grew. Each prints a table; the exit code is 1 if a limit was missed.

    uv run --directory tests python -m endurance soak redis          # twenty minutes of mixed load
    uv run --directory tests python -m endurance soak postgresql --minutes 5
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from .soak import Plan, play, to_stderr
from .stores import STORES
from .verdict import report_of


def soak(given) -> list[str]:
    plan = Plan(
        given.store, 60 * given.minutes, given.rate, ttl=given.ttl, leak=given.leak or ""
    )
    with tempfile.TemporaryDirectory() as directory:
        samples = play(plan, Path(directory), to_stderr)
    table, faults = report_of(samples, given.limit / 100)
    requests = sum(map(len, samples.timing.values()))
    sys.stdout.write(f"{samples.title}: {requests} requests in {given.minutes:g} minutes\n")
    sys.stdout.write(f"{table}\n")
    if given.samples:
        Path(given.samples).write_text(json.dumps(samples.__dict__))
    return faults


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
    of_soak.add_argument("--limit", type=float, default=3.0, help="percent of growth")
    of_soak.add_argument("--leak", help="plant one: memory, threads, descriptors, keys, time, ...")
    of_soak.add_argument("--samples", help="file for all samples, as JSON")
    given = parser.parse_args()
    faults = given.run(given)
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    sys.stdout.write("FAILED\n" if faults else "ok\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
