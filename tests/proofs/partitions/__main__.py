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
from pathlib import Path

from helpers.servers.network import missing

from proofs.chaos.report import worst_of

from .checks import CHECKS, PROMISED, figures_of, head, row
from .faults import CLUSTER_FAULTS, FAULTS
from .postgres import POSTGRES_FAULTS, AsynchronousPostgresHosts, PostgresHosts
from .scenario import Safety, play
from .servers import ClusterHosts, SentinelHosts

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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("servers", choices=SERVERS)
    parser.add_argument("faults", nargs="*", help="names of some (all)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each fault (%(default)s)")
    arguments = parser.parse_args()
    if lacking := missing():
        parser.error(f"this needs {', '.join(lacking)}")
    faults, settings = SERVERS[arguments.servers]
    broken, shows_head = [], True
    for name in arguments.faults or faults:
        fault = faults[name]
        for label, (servers, safety) in settings.items():
            with tempfile.TemporaryDirectory() as directory:
                history = play(
                    fault, safety, Path(directory), servers=servers, seconds=arguments.seconds
                )
            figures = figures_of(history)
            told = row(fault.title, label, figures)
            sys.stdout.write(f"{head(figures)}\n{told}\n" if shows_head else f"{told}\n")
            sys.stdout.flush()
            shows_head = False
            if told := worst_of(history, PROMISED if label in MAY_LOSE else CHECKS):
                broken.append(f"{fault.title}, {label}:\n{told}")
    sys.stderr.writelines(f"{violations}\n" for violations in broken)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
