"""Split the network between clients and servers, and count what came of it.

Real processes on hosts of their own (network namespaces), with two application hosts. It needs
root and Linux.

    uv run --directory tests python -m proofs.partitions sentinels
    uv run --directory tests python -m proofs.partitions cluster split-brain loss
    uv run --directory tests python -m proofs.partitions postgres
"""

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from helpers.servers.network import missing

from .checks import CHECKS, NOT_PROMISED
from .cluster import ClusterHosts
from .faults import CLUSTER_FAULTS, FAULTS, Fault
from .group import SentinelHosts
from .postgres import POSTGRES_FAULTS, AsynchronousPostgresHosts, PostgresHosts
from .report import COLUMNS, figures_of, line, row
from .scenario import Safety, play

SERVERS = {
    "sentinels": (
        FAULTS,
        {
            "0": (SentinelHosts, Safety()),
            "0, min": (SentinelHosts, Safety(min_replicas=True)),
            "1, min": (SentinelHosts, Safety(1, min_replicas=True)),
            "2, min": (SentinelHosts, Safety(2, min_replicas=True)),
        },
    ),
    "cluster": (
        CLUSTER_FAULTS,
        {"0": (ClusterHosts, Safety()), "1": (ClusterHosts, Safety(1))},
    ),
    "postgres": (
        POSTGRES_FAULTS,
        {
            "asynchronous": (AsynchronousPostgresHosts, Safety()),
            "synchronous": (PostgresHosts, Safety()),
        },
    ),
}
"""Faults and settings by the servers that they strike."""

MAY_LOSE = ("0", "0, min", "asynchronous")


def measure(fault: Fault, label: str, setting: tuple, seconds: float) -> tuple[str, list[str]]:
    servers, safety = setting
    with tempfile.TemporaryDirectory() as directory:
        history = play(fault, safety, Path(directory), servers=servers, seconds=seconds)
    promised = [c for c in CHECKS if label not in MAY_LOSE or c not in NOT_PROMISED]
    broken = [f"{fault.title}, {label}: {told}" for c in promised for told in c(history)]
    return f"| {fault.title} {row(label, figures_of(history))}", broken


def show(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("servers", choices=SERVERS)
    parser.add_argument("faults", nargs="*", help="names of some (all)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each fault (%(default)s)")
    parser.add_argument("--at-once", type=int, default=1, help="runs side by side (%(default)s)")
    arguments = parser.parse_args()
    if lacking := missing():
        parser.error(f"this needs {', '.join(lacking)}")
    faults, settings = SERVERS[arguments.servers]
    cases = [
        (faults[name], label, setting, arguments.seconds)
        for name in arguments.faults or faults
        for label, setting in settings.items()
    ]
    show(line(["", *COLUMNS]))
    show(line(["---"] * (len(COLUMNS) + 1)))
    failures = []
    with ThreadPoolExecutor(arguments.at_once) as pool:
        for told, broken in pool.map(lambda case: measure(*case), cases):
            show(told)
            failures += broken
    sys.stderr.writelines(f"{failure}\n" for failure in failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
