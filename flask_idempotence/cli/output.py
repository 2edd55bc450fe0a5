"""Tables for a terminal, plain lines for a pipe, JSON for programs.

All output leaves here, with its control characters escaped: the store holds names that clients
have sent.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

import click

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

LARGE = 5_000  # a command with so many keys or rows shows its progress


def show_progress(count: int, done: str = "keys read", *, is_over: bool = False) -> None:
    """Show in a terminal how far a long command has come, on a line of the errors."""
    if count >= LARGE and _is_terminal(sys.stderr):
        click.echo(f"\r{count:,} {done}", nl=is_over, err=True)


def print_table(rows: Sequence[Mapping[str, object]], colours: Sequence[str] = ()) -> None:
    """Print rows: aligned under their names in a terminal, separated by tabs in a pipe.

    Numbers are aligned to the right. Colours are those of the first cell in each row.
    """
    cells = [["" if cell is None else cell for cell in row.values()] for row in rows]
    texts = [
        [escaped(f"{cell:.1f}" if isinstance(cell, float) else str(cell)) for cell in row]
        for row in cells
    ]
    if not in_terminal():
        for row in texts:
            echo("\t".join(row))
        return
    columns = []
    for number, name in enumerate(rows[0] if rows else ()):
        column = [name.replace("_", " ").upper(), *(row[number] for row in texts)]
        is_numeric = all(isinstance(row[number] or 0, int | float) for row in cells)
        align = str.rjust if is_numeric else str.ljust
        columns.append([align(text, max(map(len, column))) for text in column])
    for number, (first, *others) in enumerate(zip(*columns, strict=True)):
        rest = "".join(f"  {text}" for text in others).rstrip()
        if number == 0:
            echo(first + rest, bold=True)
        else:
            echo(first, rest, fg=colours[number - 1] if colours else None)


def escaped(text: str, *, layout: str = "") -> str:
    """Return a text without control and format characters, but for those of a layout."""
    return "".join(
        letter
        if letter.isprintable() or letter in layout
        else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def in_terminal() -> bool:
    return _is_terminal(sys.stdout)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # None: it was closed before the start


def echo(text: str, rest: str = "", *, fg: str | None = None, bold: bool = False) -> None:
    """Print a text in a style, if the output is a terminal, and the rest of its line without."""
    text, rest = (escaped(each, layout="\n\t") for each in (text, rest))
    if (fg or bold) and in_terminal() and not os.environ.get("NO_COLOR"):  # https://no-color.org
        text = click.style(text, fg=fg, bold=bold or None)
    click.echo(text + rest)


def print_json(value: object) -> None:
    """Print a value as JSON, in ASCII."""
    echo(json.dumps(value, indent=2).replace("\x7f", "\\u007f"))


def print_aside(text: str) -> None:
    """Print a line that is no part of the result, on the error output."""
    click.echo(escaped(text), err=True)
