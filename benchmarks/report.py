#!/usr/bin/env python3
"""Measure modes and a service once more, and write docs/reports/benchmarks/report.md.

    uv run --group bench python benchmarks/report.py            # all of it, in 20 minutes
    uv run --group bench python benchmarks/report.py --quick    # whether it works; elsewhere

Parts: each mode on each store (modes), and the throughput of a whole service, which needs wrk
(service). A part that is measured alone replaces its own section.
"""

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import service
from measuring.machine import machine, processor_times, stolen_since
from measuring.stores import Stores, open_stores, requests_for
from modes.comparison import CASES, compare
from reporting import page

DIRECTORY = Path(__file__).parents[1] / "docs" / "reports" / "benchmarks"
PACKAGES = ("flask", "redis")
REQUESTS, QUICK_REQUESTS = 3000, 20


def _modes(stores: Stores, requests: int, _: bool) -> list[dict]:
    """Measure each case on each store, in databases with fewer requests."""
    uris = stores.uris()
    return [
        compare(case, name, uri, requests_for(name, requests))
        for case in CASES
        for name, uri in uris.items()
    ]


def _service(stores: Stores, _: int, quick: bool) -> list[dict]:
    rounds, seconds = (1, 1) if quick else (15, 2)
    return service.measure(stores.redis, rounds, seconds, views=("database",))


PARTS: dict[str, Callable[[Stores, int, bool], list[dict]]] = {
    "modes": _modes,
    "service": _service,
}


def main() -> int:
    """Run the report from the command line; return the status to exit with."""
    arguments = _arguments()
    sys.stdout.reconfigure(line_buffering=True)
    logging.getLogger("flask_idempotence").setLevel(logging.ERROR)  # memory is meant here
    directory = arguments.directory
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "report.json"
    report = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    began = time.monotonic()
    with open_stores() as stores:
        for line in stores.left_out:
            print(line)
        for part in arguments.only or PARTS:
            report[part] = _measure(part, stores, arguments)
            file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    page.write(report, directory)
    print(f"written in {time.monotonic() - began:.0f} s: {directory / 'report.md'}")
    return 0


def _measure(part: str, stores: Stores, arguments: argparse.Namespace) -> dict:
    """Return what the report keeps of a part."""
    print(f"... {part}", file=sys.stderr, flush=True)
    began = time.monotonic()
    with stores.redis.client() as client:
        client.flushall()
    told = machine(**stores.versions, **{name: version(name) for name in PACKAGES})
    before = processor_times()
    rows = PARTS[part](stores, arguments.requests, arguments.quick)
    told["stolen"] = stolen_since(before)
    print(f"{part}: {len(rows)} rows in {time.monotonic() - began:.0f} s")
    return {"machine": told, "rows": rows, "left out": stores.left_out if part == "modes" else []}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[*PARTS],
        metavar="PART",
        help="measure this part; may be repeated. One of: %(choices)s",
    )
    parser.add_argument(
        "--requests",
        type=int,
        metavar="N",
        help=f"requests of each variant, a quarter of them in databases (default: {REQUESTS}, "
        f"or {QUICK_REQUESTS} with --quick)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few requests and keys, short rounds: shows that it works, and measures nothing well",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        help="where the page, its charts and the figures go (default: docs/reports/benchmarks, "
        "or a new temporary directory with --quick)",
    )
    arguments = parser.parse_args()
    quick = arguments.quick
    if arguments.requests is None:
        arguments.requests = QUICK_REQUESTS if quick else REQUESTS
    if arguments.requests < 1:
        parser.error("--requests: at least 1")
    if arguments.directory is None:
        arguments.directory = Path(tempfile.mkdtemp(prefix="report-")) if quick else DIRECTORY
    if quick and arguments.directory.resolve() == DIRECTORY:
        parser.error("--quick: not in place of the report itself; choose another --directory")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
