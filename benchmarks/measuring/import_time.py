#!/usr/bin/env python3
"""Measure how long it takes to import the package, beside the packages that it stands on.

Every import has a new interpreter, in turn with the others; the time is that of the import
statement. The bytecode is compiled beforehand, into a folder of the benchmark's own, since some
environments keep none.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version

from timing import Spread

BASE = "flask, redis, marshmallow"
LIMITS = {  # statement: at most this ratio to the base, or None
    "flask_idempotence": 1.12,
    f"{BASE}, flask_idempotence": 1.12,
    f"{BASE}, flask_idempotence.stores.redis": None,  # what an application with Redis imports
}

PROGRAM = """
import time
start = time.perf_counter()
import {}
print(time.perf_counter() - start)
"""


def seconds(statement: str, environment: dict[str, str]) -> float:
    """Return the time of one import in a new interpreter."""
    command = [sys.executable, "-c", PROGRAM.format(statement)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def measure(starts: int) -> dict[str, list[float]]:
    """Return the times of each statement, interleaved."""
    times: dict[str, list[float]] = {statement: [] for statement in (BASE, *LIMITS)}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        for number in range(starts + 1):
            for statement, found in times.items():
                took = seconds(statement, environment)
                if number:  # the first compiles
                    found.append(took)
    return times


def main() -> int:
    """Print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=40, help="of each (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="end with 1 if a limit is missed")
    arguments = parser.parse_args()
    names = ("flask", "redis", "marshmallow")
    print(f"Python {platform.python_version()}, " + ", ".join(f"{n} {version(n)}" for n in names))
    times = measure(arguments.starts)
    missed = 0
    print(f"{'import':<60} median      ratio     p10     p90")
    for statement, found in times.items():
        limit = LIMITS.get(statement)
        base = times[BASE]
        whole = statistics.median(found) / statistics.median(base)
        spread = Spread.of([mine / its for mine, its in zip(found, base, strict=True)])
        is_missed = limit is not None and whole > limit
        missed += is_missed
        told = f"limit {limit}" if limit else ""
        print(
            f"{statement:<58} {statistics.median(found) * 1000:6.1f} ms   {whole:7.3f} "
            f"{spread.p10:7.3f} {spread.p90:7.3f} {told}{'  MISSED' if is_missed else ''}"
        )
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
