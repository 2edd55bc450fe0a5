#!/usr/bin/env python3
"""Count what a failover forgets, with `wait_replicas` and without.

Real processes on loopback: one primary, two replicas, three sentinels. Under load the primary is
killed, and afterwards every acknowledged claim and completion is looked for on the new one.
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.servers.failover import Counts, fail_over
from helpers.servers.topologies import SentinelGroup

REPLICAS = SentinelGroup.REPLICAS

CASES = {  # what happens: how many replicas are cut off before
    "the primary dies": 0,
    "both replicas are cut off, then the primary dies": 2,
    "one replica is cut off, then the primary and the other die": 1,
}
COLUMNS = ("", "`wait_replicas`", "claims", "lost", "completions", "lost", "no answer", "slowest")


def measure(cut_off: int, wait_replicas: int, runs: int) -> Counts:
    counts = Counts()
    for _ in range(runs):
        counts += fail_over(wait_replicas=wait_replicas, cut_off=cut_off)
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
    lost_of_all = 0
    for case, cut_off in CASES.items():
        for wait_replicas in (0, 1, 2):
            c = measure(cut_off, wait_replicas, runs)
            lost = (c.lost_claims, c.lost_completions)
            numbers = (c.claims, lost[0], c.completions, lost[1], c.failures, f"{c.slowest} s")
            show(case, wait_replicas, *numbers)
            lost_of_all += sum(lost) if wait_replicas == REPLICAS else 0
    return 1 if lost_of_all else 0


if __name__ == "__main__":
    sys.exit(main())
