"""A benchmark as a command: its arguments, its report, and the status to exit with."""

import argparse
import logging
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from measuring.aims import table_of
from measuring.pages import replace_part
from measuring.timing import Spread

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reports" / "aims.md"
SUMMARY = ROOT / "docs" / "overhead.md"
"""The page that users read; it has the most important figures of the report."""


def parser_of(description: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments of a report: --check and --docs."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="end with status 1 if an aim is missed"
    )
    parser.add_argument("--docs", action="store_true", help="write the tables into the report")
    return parser


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def quiet() -> None:
    """Show each line at once, and silence the warning about the memory store."""
    sys.stdout.reconfigure(line_buffering=True)
    logging.getLogger("flask_idempotence").setLevel(logging.ERROR)


def finish(
    arguments: argparse.Namespace,
    *parts: list[dict],
    missed: int = 0,
    note: str = "",
    summary: str = "",
) -> int:
    """Print a table of the aims in each part; return the status to exit with.

    Args:
        missed: figures beyond their limits that no table shows.
        note: what the report says below the tables, such as the machine.
        summary: the text for the page that users read; empty for none.
    """
    tables = "\n\n".join([*map(table_of, parts), *([note] if note else ())])
    print(f"\n{tables}")
    if arguments.docs:
        command = Path(sys.argv[0]).resolve().relative_to(ROOT).as_posix()
        for page, part in ((PAGE, tables), (SUMMARY, summary)):
            if part:
                text = replace_part(page.read_text(encoding="utf-8"), command, part)
                page.write_text(text, encoding="utf-8")
    missed += sum(row["missed"] for rows in parts for row in rows)
    print(f"\nfigures beyond their limits: {missed}" if missed else "\nall aims kept")
    return 1 if arguments.check and missed else 0


def print_versions(*packages: str, **others: str) -> None:
    versions = {"Python": platform.python_version()}
    versions |= {name: version(name) for name in packages} | others
    print(", ".join(f"{name} {number}" for name, number in versions.items()))


def row_of(spread: Spread, digits: int) -> dict:
    return {name: round(value, digits) for name, value in vars(spread).items()}


def microseconds(nanoseconds: list[int]) -> Spread:
    """Return the spread of times, in microseconds."""
    return Spread.of([time / 1000 for time in nanoseconds])
