"""Split the network between clients, sentinels and servers, and count what came of it.

Real processes on hosts of their own (network namespaces): one primary, two replicas, three
sentinels, two application hosts; or a cluster of three primaries with a replica each. It needs root and Linux.

    uv run --directory tests python -m partitions
    uv run --directory tests python -m partitions --cluster
"""

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from helpers.servers.network import missing

from .checks import CHECKS, NOT_PROMISED
from .cluster import ClusterHosts
from .faults import CLUSTER_FAULTS, FAULTS
from .group import SentinelHosts
from .report import COLUMNS, figures_of, line, row
from .scenario import Safety, play

SAFETIES = (Safety(0), Safety(0, True), Safety(1, True), Safety(2, True))
CLUSTER_SAFETIES = (Safety(0), Safety(1))


def measure(servers: type, name: str, safety: Safety, seconds: float) -> tuple[str, list[str]]:
    with tempfile.TemporaryDirectory() as directory:
        history = play(FAULTS[name], safety, Path(directory), servers=servers, seconds=seconds)
    promised = [c for c in CHECKS if safety.wait_replicas or c not in NOT_PROMISED]
    broken = [f"{name}, {safety.title}: {told}" for c in promised for told in c(history)]
    return row(safety.title, figures_of(history)), broken


def show(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("faults", nargs="*", help=f"some of {', '.join(FAULTS)} (all)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each fault (%(default)s)")
    parser.add_argument("--cluster", action="store_true", help="in place of sentinels")
    parser.add_argument("--at-once", type=int, default=1, help="runs side by side (%(default)s)")
    arguments = parser.parse_args()
    if lacking := missing():
        parser.error(f"this needs {', '.join(lacking)}")
    default = CLUSTER_FAULTS if arguments.cluster else FAULTS
    servers = ClusterHosts if arguments.cluster else SentinelHosts
    safeties = CLUSTER_SAFETIES if arguments.cluster else SAFETIES
    cases = list(product(arguments.faults or default, safeties))
    failures = []
    show(line(["", *COLUMNS]))
    show(line(["---"] * (len(COLUMNS) + 1)))
    with ThreadPoolExecutor(arguments.at_once) as pool:
        results = pool.map(lambda case: measure(servers, *case, arguments.seconds), cases)
        for (name, _), (told, broken) in zip(cases, results, strict=True):
            show(f"| {FAULTS[name].title} {told}")
            failures += broken
    sys.stderr.writelines(f"{failure}\n" for failure in failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
