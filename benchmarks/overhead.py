#!/usr/bin/env python3
"""Measure what the extension adds to a request, in ratios that hold on any machine.

The same request goes, in turn and in one process, to a guarded view, to a view that only sends
the store's commands ("floor"), and to the lines that a developer would write by hand. A Redis
server is started on loopback. The round trips to it are counted, and the bytes of each key.

Everything is measured over TCP and over a Unix socket, in one process without hiredis and in
another with it; the options choose one of each. Where hiredis is not installed, `uv run --with
hiredis` adds it to the second process. The table at the end has a line for each aim.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from measuring.aims import Table, rows_of
from measuring.command import finish, parser_of, quiet

HERE = Path(__file__).resolve()
SOCKETS = ("tcp", "unix")
TITLES = {"redis": "on Redis", "memory_store": "on the memory store"}


def main() -> int:
    """Run the benchmark from the command line; return the status to exit with."""
    arguments = _arguments()
    quiet()
    if arguments.part:
        _measure_part(arguments)
        return 0
    wanted = (False, True) if arguments.hiredis is None else (arguments.hiredis,)
    report = [part for has_hiredis in wanted for part in _in_child(has_hiredis, arguments)]
    return finish(report, arguments, _tables(report))


def _tables(report: list[dict]) -> dict[str, Table]:
    """Return a table for each kind of store that was measured, by its title."""
    parts = {title: [one[part] for one in report if part in one] for part, title in TITLES.items()}
    return {title: Table(rows_of(rows)) for title, rows in parts.items() if rows}


def _arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--socket", choices=SOCKETS, help="the socket (default: each)")
    parser.add_argument(
        "--hiredis",
        action=argparse.BooleanOptionalAction,
        help="whether redis-py parses with hiredis (default: each)",
    )
    parser.add_argument("--part", type=Path, help=argparse.SUPPRESS)  # of a child process
    return parser.parse_args()


def _in_child(has_hiredis: bool, arguments: argparse.Namespace) -> list[dict]:
    """Measure with or without hiredis in a process of its own; return its report, if any."""
    python = _python(has_hiredis)
    if not python:
        print("\nleft out: with hiredis, since neither hiredis nor uv is installed")
        return []
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [*python, str(HERE), "--hiredis" if has_hiredis else "--no-hiredis"]
        command += ["--requests", str(arguments.requests), "--part", file.name]
        command += ["--socket", arguments.socket] if arguments.socket else []
        subprocess.run(command, check=True, env=_environment(), cwd=HERE.parent)
        return [json.loads(Path(file.name).read_text(encoding="utf-8"))]


def _python(has_hiredis: bool) -> list[str]:
    if not has_hiredis or importlib.util.find_spec("hiredis"):
        return [sys.executable]
    uv = shutil.which("uv")
    return [uv, "run", "--quiet", "--with", "hiredis", "python"] if uv else []


def _environment() -> dict[str, str]:
    """Return an environment in which every child starts the same Redis server."""
    from helpers.servers.processes import (  # noqa: PLC0415 - a child may import redis-py late only
        BINARY_VARIABLE,
        redis_binary,
    )

    return {**os.environ, BINARY_VARIABLE: redis_binary()}


def _measure_part(arguments: argparse.Namespace) -> None:
    if not arguments.hiredis:
        sys.modules["hiredis"] = None  # redis-py looks for it once, when it is imported
    from measuring import overheads  # noqa: PLC0415 - imports redis-py

    sockets = [arguments.socket] if arguments.socket else SOCKETS
    report = overheads.measure(sockets, arguments.requests)
    arguments.part.write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
