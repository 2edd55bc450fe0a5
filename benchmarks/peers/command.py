"""Compare this extension with its peers, each installed from PyPI into an environment of its own.

    uv run python -m benchmarks.peers

--correctness sends each peer repeats, 8 simultaneous duplicates, another user or body under the
same key, an abort, an exception and a killed process; over HTTP, on two worker processes. --speed
measures the time that each adds to its own unguarded view. Without either, both run. The results
are written to docs/reports/benchmarks/peers-*.json, and the tables of docs/comparison.md are
renewed; with --only they are only shown.
"""

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from measuring.pages import replace_part
from measuring.stores import DURABLE

from . import ROOT
from .catalogue import PEERS
from .environments import Environments
from .scenarios import observe
from .serving import PostgresServer, RedisServer, Stage
from .speed import measure
from .tables import OURS, page_parts, parts_of

ENVIRONMENTS = Path(tempfile.gettempdir()) / "idempotence-peers"
"""Where the peers are installed, and kept."""
PAGES = (ROOT / "docs" / "comparison.md", ROOT / "docs" / "reports" / "peers.md")
RESULTS = ROOT / "docs" / "reports" / "benchmarks"


def main() -> int:
    arguments = _arguments()
    sys.stdout.reconfigure(line_buffering=True)
    if arguments.tables:
        _show(_results(), write=True)
        return 0
    wanted = arguments.only or [peer.name for peer in PEERS]
    peers = [peer for peer in PEERS if peer.name in {*wanted, OURS}]
    began = time.monotonic()
    with ExitStack() as stack:
        stage = Stage(Environments(ENVIRONMENTS), stack.enter_context(RedisServer()))
        if on_postgres := [peer for peer in peers if peer.postgres]:
            stage.postgres = stack.enter_context(PostgresServer(**DURABLE))
            stage.create_schema(on_postgres[0])
        report = {}
        if arguments.correctness or not arguments.speed:
            report["correctness"] = {
                "machine": stage.machine(),
                "versions": {peer.name: stage.environments.versions(peer) for peer in peers},
                "seen": {peer.name: observe(stage, peer) for peer in peers},
            }
        if arguments.speed or not arguments.correctness:
            report["speed"] = {
                "machine": stage.machine(),
                "requests": arguments.requests,
                "measured": measure(stage, peers, arguments.requests),
            }
    _show(report, write=not arguments.only)
    print(f"\n{time.monotonic() - began:.0f} seconds")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--correctness", action="store_true", help="each peer's behaviour; minutes"
    )
    parser.add_argument("--speed", action="store_true", help="each peer's cost; a minute or two")
    parser.add_argument(
        "--tables", action="store_true", help="rewrite the tables from the last results"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        choices=[peer.name for peer in PEERS],
        help="compare only this one with ours; may be repeated. One of: %(choices)s",
    )
    parser.add_argument(
        "--requests",
        type=int,
        default=2000,
        metavar="N",
        help="requests of each kind that are timed (default: %(default)s)",
    )
    return parser.parse_args()


def _show(report: dict, *, write: bool) -> None:
    """Print the tables; write them, and what they are made of, to the documentation."""
    parts = page_parts(report)
    print("\n\n".join(parts.values()))
    if not write:
        return
    RESULTS.mkdir(exist_ok=True)
    for name, results in report.items():
        text = json.dumps(results, indent=1) + "\n"
        (RESULTS / f"peers-{name}.json").write_text(text, encoding="utf-8")
    for file in PAGES:
        page = file.read_text(encoding="utf-8")
        for name in parts.keys() & set(parts_of(page)):
            page = replace_part(page, name, parts[name])
        file.write_text(page, encoding="utf-8")


def _results() -> dict:
    files = {name: RESULTS / f"peers-{name}.json" for name in ("correctness", "speed")}
    return {
        name: json.loads(file.read_text(encoding="utf-8"))
        for name, file in files.items()
        if file.exists()
    }
