"""A benchmark as a command: its arguments, its report, and the status to exit with."""

import argparse
import json
import logging
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from measuring.aims import missed_in, table_of
from measuring.pages import replace_part
from measuring.timing import Spread

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reports" / "aims.md"


def parser_of(description: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments of a report: --check, --docs and --json."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="end with status 1 if an aim is missed"
    )
    parser.add_argument("--docs", action="store_true", help="write the tables into the report")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    return parser


def positive(text: str) -> int:
    """Return an integer from 1 on, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def quiet() -> None:
    """Show each line at once, and silence the warning about the memory store."""
    sys.stdout.reconfigure(line_buffering=True)
    logging.getLogger("flask_idempotence").setLevel(logging.ERROR)


def finish(report: object, arguments: argparse.Namespace, *parts: object) -> int:
    """Print a table of the aims in each part, and write all where it is wanted.

    Returns:
        The status to exit with.
    """
    tables = "\n\n".join(map(table_of, parts))
    print(f"\n{tables}")
    if arguments.docs:
        command = Path(sys.argv[0]).resolve().relative_to(ROOT).as_posix()
        text = replace_part(PAGE.read_text(encoding="utf-8"), command, tables)
        PAGE.write_text(text, encoding="utf-8")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    count = missed_in(report)
    print(f"\nfigures beyond their limits: {count}" if count else "\nall aims kept")
    return 1 if arguments.check and count else 0


def versions_of(*packages: str, **others: str) -> dict:
    """Return the versions of Python and of packages, and print them."""
    versions = {"Python": platform.python_version()}
    versions |= {name: version(name) for name in packages} | others
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    return versions


def row_of(spread: Spread, digits: int) -> dict:
    """Return a spread as a row of the report."""
    return {name: round(value, digits) for name, value in vars(spread).items()}


def microseconds(nanoseconds: list[int]) -> Spread:
    """Return the spread of times, in microseconds."""
    return Spread.of([time / 1000 for time in nanoseconds])
