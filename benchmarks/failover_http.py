#!/usr/bin/env python3
"""Count what runs twice because of a failover, with `wait_replicas` and without.

Real processes on loopback: one primary, two replicas, three sentinels, and an application on four
workers whose clients send operations at-most-once and repeat what is not answered. The primary is
killed under load; when all is well again, every operation is sent once more.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from chaos.failover import Counts, fail_over_http
from failover import CASES
from helpers.servers.topologies import SentinelGroup

REPLICAS = SentinelGroup.REPLICAS

COLUMNS = ("", "`wait_replicas`", "acknowledged", "ran twice", "503", "unknown, never ran", "away")


def measure(cut_off: int, wait_replicas: int, runs: int) -> Counts:
    counts = Counts()
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as directory:
            counts += fail_over_http(Path(directory), wait_replicas=wait_replicas, cut_off=cut_off)
    return counts


def show(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, help="failovers a line (%(default)s)")
    runs = parser.parse_args().runs
    sys.stdout.reconfigure(line_buffering=True)
    show(*COLUMNS)
    show(*["---"] * len(COLUMNS))
    twice = 0
    for case, cut_off in CASES.items():
        for wait_replicas in (0, REPLICAS):
            c = measure(cut_off, wait_replicas, runs)
            show(case, wait_replicas, c.acknowledged, c.lost, c.refused, c.unknown, f"{c.away} s")
            twice += c.twice if wait_replicas == REPLICAS else 0
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
