#!/usr/bin/env python3
"""Measure the stores without requests: the one in memory, and the one in a table.

    uv run python benchmarks/stores.py [--only memory] [--keys N] [--rows N] [--claims N]
    uv run python benchmarks/stores.py --pairs N

In memory, single operations are timed while a million keys are held, expire and go. In SQLite and
PostgreSQL, which flush each commit to the disk as they do by default, claims in a full table take
turns with claims in an empty one; then others are made while expired rows are removed. With
--pairs, on those and on MariaDB: claims with their completions, by one thread and by 32.
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from measuring import memory_store, store_pairs, table_store
from measuring.command import positive, quiet
from measuring.stores import MEMORY, POSTGRESQL, SQLITE, open_stores


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = (MEMORY, SQLITE, POSTGRESQL)
    parser.add_argument("--only", choices=kinds, action="append", help="may be repeated")
    parser.add_argument("--keys", type=positive, default=1_000_000, help="in memory")
    parser.add_argument("--rows", type=positive, default=300_000, help="of the full table")
    parser.add_argument("--claims", type=positive, default=1000, help="in each of the two tables")
    parser.add_argument("--pairs", type=positive, default=0, help="and nothing else")
    parser.add_argument(
        "--check", action="store_true", help="end with 1 if an operation in memory took too long"
    )
    arguments = parser.parse_args()
    quiet()
    wanted = arguments.only or kinds
    with open_stores() as stores:
        for line in stores.left_out:
            print(line)
        if arguments.pairs:
            store_pairs.measure(stores, arguments.pairs)
            return 0
        for name in stores.databases():
            if name in wanted:
                table_store.measure(name, stores, arguments.rows, arguments.claims)
    slow = memory_store.measure(arguments.keys) if MEMORY in wanted else 0
    return 1 if arguments.check and slow else 0


if __name__ == "__main__":
    sys.exit(main())
