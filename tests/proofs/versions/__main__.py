"""Run the tests on other versions of servers, libraries and Python.

    uv run --directory tests python -m proofs.versions                   # all of them, two hours
    uv run --directory tests python -m proofs.versions redis valkey-9.1  # components, or cells
    uv run --directory tests python -m proofs.versions --quick           # a few, newest servers
    uv run --directory tests python -m proofs.versions --quick python    # a few, on every Python
    uv run --directory tests python -m proofs.versions --list

What is not installed is fetched by uv, pip, npm and, on Debian, apt-get into a cache, from where
each of them is set up to get packages. Nothing is installed on the machine. A version that cannot
be fetched is reported as "not available here".
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from helpers.repository import ROOT

from .cells import CELLS, NEWEST, QUICK, VARIABLES, Cell
from .sources import UnobtainableError, run, version_of

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "idempotence-versions")
COLUMNS = "| component | version | from | passed | skipped | failed | seconds | date |"


@dataclass
class Setup:
    version: str
    source: str
    environment: dict[str, str] = field(default_factory=dict)
    uv: tuple[str, ...] = ()


def prepare(cell: Cell, cache: Path) -> Setup:
    """Get a version, or raise `UnobtainableError` with what was tried."""
    problems = []
    for source in cell.sources:
        try:
            if isinstance(source, str):
                return _library(source)
            program = source.get(cache)
            version = version_of(program, "--version")
        except UnobtainableError as error:
            problems.append(str(error))
            continue
        if cell.component == "Python":
            return Setup(version, str(source), uv=("--python", str(program)))
        variable = VARIABLES[cell.component]
        place = program.parent if cell.component == "PostgreSQL" else program
        return Setup(version, str(source), {variable: str(place)})
    raise UnobtainableError("; ".join(problems))


def _library(requirement: str) -> Setup:
    uv = ("--with", requirement)
    name = requirement.partition("==")[0]
    program = f"import importlib.metadata as m; print(m.version({name!r}))"
    version = run("uv", "run", "--isolated", *uv, "python", "-c", program).strip()
    server = shutil.which("redis-server") or shutil.which("valkey-server")
    # With two environments, uv hides the one of the wheel.
    here = {"IDEMPOTENCE_TEST_REDIS": server} if server else {}
    return Setup(version, "PyPI", here, uv)


def play(cell: Cell, setup: Setup, tests: tuple[str, ...], options: argparse.Namespace) -> dict:
    """Run the tests; those that fail run once more, alone. Return the counts by outcome."""
    place = _place(cell, options)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    command = ["uv", "run", "--isolated", *setup.uv, "pytest", "-q", f"-ocache_dir={place}/cache"]
    command += ["-W", "default::DeprecationWarning", f"--junit-xml={place}/first.xml"]
    command += ["-n", str(options.processes), *tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **setup.environment}
    with (place / "log").open("wb") as log:
        to_log = {"cwd": ROOT, "env": environment, "stdout": log, "stderr": log}
        code = subprocess.run(command, check=False, **to_log).returncode
        counts = _counts(place / "first.xml")
        if code == 1:
            again = ["-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
            again += [f"--junit-xml={place}/again.xml"]
            code = subprocess.run([*command, *again], check=False, **to_log).returncode
            failed = _counts(place / "again.xml")["failed"]
            counts["passed"] += counts["failed"] - failed
            counts["failed"] = failed
    if code and not counts["failed"]:
        counts["failed"] = 1  # pytest itself did not end well
    return counts


def _place(cell: Cell, options: argparse.Namespace) -> Path:
    return options.cache / "runs" / cell.name.replace("*", "x")


def _counts(file: Path) -> dict[str, int]:
    if not file.exists():
        return {"passed": 0, "skipped": 0, "failed": 0}
    suite = next(ET.parse(file).getroot().iter("testsuite"))
    number = {name: int(suite.get(name, 0)) for name in ("tests", "skipped", "failures", "errors")}
    failed = number["failures"] + number["errors"]
    passed = number["tests"] - number["skipped"] - failed
    return {"passed": passed, "skipped": number["skipped"], "failed": failed}


def row(cell: Cell, options: argparse.Namespace) -> tuple[str, bool]:
    try:
        setup = prepare(cell, options.cache)
    except UnobtainableError as error:
        return (
            f"| {cell.component} | {cell.version} | not available here: {error} | | | | | |",
            True,
        )
    started = time.monotonic()
    counts = play(cell, setup, QUICK[cell.component] if options.quick else cell.tests, options)
    figures = [*counts.values(), round(time.monotonic() - started), date.today().isoformat()]  # noqa: DTZ011
    if counts["failed"]:
        print(f"{cell.name}: {_place(cell, options)}/log", file=sys.stderr, flush=True)  # noqa: T201
    words = [cell.component, setup.version, setup.source, *map(str, figures)]
    return f"| {' | '.join(words)} |", not counts["failed"]


def _wanted(names: list[str]) -> list[Cell]:
    def is_meant(cell: Cell) -> bool:
        return any(name in (cell.name, cell.component.lower()) for name in names)

    return [cell for cell in CELLS if not names or is_meant(cell)]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cells", nargs="*", type=str.lower, help="components or cells (all)")
    parser.add_argument("--cache", type=Path, default=CACHE, help="(%(default)s)")
    parser.add_argument("--processes", type=int, default=4, help="of pytest (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a few tests only")
    parser.add_argument("--list", action="store_true", help="name the cells, and end")
    options = parser.parse_args()
    options.cache = options.cache.resolve()
    names = options.cells or (list(NEWEST) if options.quick else [])
    cells = _wanted(names)
    if unknown := [name for name in names if not _wanted([name])]:
        parser.error(f"no such cell: {', '.join(unknown)}")
    lines = [cell.name for cell in cells] if options.list else []
    print("\n".join(lines or [COLUMNS, "|---" * COLUMNS.count(" |") + "|"]), flush=True)  # noqa: T201
    all_well = True
    for cell in [] if options.list else cells:
        line, is_well = row(cell, options)
        print(line, flush=True)  # noqa: T201
        all_well &= is_well
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
