"""A benchmark as a command: arguments, a Redis server, and the report."""

import argparse
import json
import logging
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measuring.timing import Spread

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from helpers.servers.processes import RedisServer


def run(description: str, measure: Callable[[RedisServer, int, dict], None]) -> int:
    """Run a benchmark from the command line; return the status to exit with.

    Args:
        description: what it does.
        measure: is given the server, the number of requests, and the report to fill. A row of it
            that has a limit says whether that is `missed`.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--requests",
        type=int,
        default=5000,
        metavar="N",
        help="requests of each variant (default: %(default)s)",
    )
    parser.add_argument(
        "--check", action="store_true", help="end with status 1 if a limit is missed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    arguments = parser.parse_args()
    if arguments.requests < 1:
        parser.error("--requests: at least 1")
    sys.stdout.reconfigure(line_buffering=True)
    logging.getLogger("flask_idempotence").setLevel(logging.ERROR)  # memory is meant here
    told = {"requests": arguments.requests}
    with RedisServer() as server:
        measure(server, arguments.requests, told)
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    count = _missed(told)
    print(f"\nlimits missed: {count}" if count else "\nall limits kept")
    return 1 if arguments.check and count else 0


def tell_versions(server: RedisServer, packages: tuple[str, ...], told: dict) -> None:
    """Say what is measured with."""
    told["python"] = platform.python_version()
    told["packages"] = {name: version(name) for name in packages}
    told["redis"] = server.client().info("server")["redis_version"]
    names = ", ".join(f"{name} {number}" for name, number in told["packages"].items())
    print(f"Python {told['python']}, {names}; Redis {told['redis']} over TCP on loopback")
    print(f"{told['requests']} requests of each variant, interleaved; microseconds a request")


def row_of(spread: Spread, digits: int) -> dict:
    """Return a spread as it stands in the report."""
    return {name: round(value, digits) for name, value in vars(spread).items()}


def microseconds(nanoseconds: list[int]) -> Spread:
    """Return the spread of times, in microseconds."""
    return Spread.of([time / 1000 for time in nanoseconds])


def _missed(told: Any) -> int:
    if isinstance(told, list):
        return sum(map(_missed, told))
    if isinstance(told, dict):
        return told.get("missed", 0) + sum(map(_missed, told.values()))
    return 0
