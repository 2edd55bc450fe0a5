#!/usr/bin/env python3
"""Measure everything once more, and write the page docs/benchmarks/report.md with its charts.

    uv run --group bench python benchmarks/report.py

Parts: each mode on each store; the throughput of a whole service (needs wrk); growth with live
keys, simultaneous duplicates and bodies. A part that is measured alone replaces its own section.
The comparison with peers is a command of its own: python -m benchmarks.peers.
"""

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import report_modes
import report_page
import report_scale
import report_service
from machine import machine
from running import RedisServer

DIRECTORY = Path(__file__).parents[1] / "docs" / "benchmarks"
PACKAGES = ("flask", "redis")
PARTS = tuple(report_page.SECTIONS)


def main() -> int:
    """Run the report from the command line; return the status to exit with."""
    arguments = _arguments()
    sys.stdout.reconfigure(line_buffering=True)
    logging.getLogger("flask_idempotence").setLevel(logging.ERROR)  # memory is meant here
    file = arguments.directory / "report.json"
    arguments.directory.mkdir(parents=True, exist_ok=True)
    report = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    with RedisServer() as server:
        versions = {"Redis": server.version, **{name: version(name) for name in PACKAGES}}
        for part in arguments.only or PARTS:
            began = time.monotonic()
            told = machine(**versions)
            rows = _measure(part, server, arguments)
            report[part] = {"machine": told, "rows": rows}
            print(f"{part}: {len(rows)} rows in {time.monotonic() - began:.0f} s")
            file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    report_page.write(report, arguments.directory)
    print(f"written: {arguments.directory / 'report.md'}")
    return 0


def _measure(part: str, server: RedisServer, arguments: argparse.Namespace) -> list[dict]:
    requests, quick = arguments.requests, arguments.quick
    with server.client() as client:
        client.flushall()
    if part == "modes":
        with _stores(server) as stores:
            return report_modes.measure(stores, requests)
    if part == "service":
        return report_service.measure(server, *((1, 1) if quick else (5, 3)))
    if part == "growth":
        return report_scale.growth(server, requests, 10_000 if quick else report_scale.KEYS[-1])
    if part == "duplicates":
        return report_scale.duplicates(server)
    return report_scale.bodies(server, requests)


@contextmanager
def _stores(server: RedisServer) -> Iterator[dict[str, str]]:
    """Yield the URIs of the stores, by what they are called in the report."""
    stores = {"memory": "memory://", "Redis, TCP": server.url, "Redis, unix": server.unix_url}
    with ExitStack() as stack:
        if _has_sql():
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            stores["SQLite"] = f"sqlite:///{directory}/report.db"
            from databases import PostgresServer  # noqa: PLC0415 - needs psycopg

            stores["PostgreSQL"] = stack.enter_context(PostgresServer()).url()
        yield stores


def _has_sql() -> bool:
    names = ("flask_idempotence.stores.sql", "sqlalchemy", "psycopg")
    return all(find_spec(name) for name in names)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=PARTS,
        metavar="PART",
        help="measure this part; may be repeated. One of: %(choices)s",
    )
    parser.add_argument(
        "--requests",
        type=int,
        default=1000,
        metavar="N",
        help="requests of each variant (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="fewer keys and shorter rounds")
    parser.add_argument(
        "--directory",
        type=Path,
        default=DIRECTORY,
        help="where the page, its charts and the figures go (default: docs/benchmarks)",
    )
    arguments = parser.parse_args()
    if arguments.requests < 1:
        parser.error("--requests: at least 1")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
