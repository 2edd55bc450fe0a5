"""Tables for a terminal, plain lines for a pipe, JSON for programs."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import click

LARGE = 5_000
"""Keys in a store from which on a progress bar is shown."""


@contextmanager
def progress(label: str, length: int | None) -> Iterator[Callable[[int], object]]:
    """Show a progress bar on the error output, if that is a terminal and the job is long.

    It yields a function that advances the bar by a number of steps, of which `length` is the most.
    """
    if length is None or length < LARGE or not _is_terminal(sys.stderr):
        yield lambda _: None
        return
    # Without an estimate of the time left: other applications' keys come at irregular intervals.
    with click.progressbar(
        length=length, label=label, file=sys.stderr, show_eta=False, width=24
    ) as bar:
        yield bar.update
        bar.update(length - bar.pos)


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str | float]], colours: Sequence[str] = ()
) -> None:
    """Print rows: aligned under a heading in a terminal, separated by tabs in a pipe.

    Numbers are aligned to the right. Colours are those of the first cell in each row.
    """
    if not in_terminal():
        for row in rows:
            print_columns(row)
        return
    if not rows:
        return
    heading, *lines = aligned(header, rows)
    click.echo(styled(heading, bold=True))
    end = max(len(_text_of(row[0])) for row in [header, *rows])
    for number, line in enumerate(lines):
        first = styled(line[:end], fg=colours[number]) if colours else line[:end]
        click.echo(first + line[end:])


def print_columns(row: Sequence[str | float]) -> None:
    """Print a row for a pipe, separated by tabs."""
    click.echo("\t".join(map(_text_of, row)))


def aligned(header: Sequence[str], rows: Sequence[Sequence[str | float]]) -> list[str]:
    """Return a heading and its rows, one or more, as lines; numbers are aligned to the right."""
    lines = [[_text_of(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    numeric = [all(map(_is_number, column)) for column in zip(*rows, strict=True)]

    def line_of(line: Sequence[str]) -> str:
        cells = zip(line, widths, numeric, strict=True)
        return "  ".join(c.rjust(width) if n else c.ljust(width) for c, width, n in cells).rstrip()

    return [line_of(header), *map(line_of, lines)]


def _is_number(cell: str | float) -> bool:
    return cell == "" or isinstance(cell, int | float)


def _text_of(cell: str | float) -> str:
    """Return the text of a cell."""
    return escaped(f"{cell:.1f}" if isinstance(cell, float) else str(cell))


def escaped(text: str) -> str:
    """Return a text without control characters, which a name in the store may hold."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def in_terminal() -> bool:
    """Whether the output is a terminal."""
    return _is_terminal(sys.stdout)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # None: it was closed before the start


def is_closed() -> bool:
    """Whether the output is a pipe that no program reads any more, where the system can say so."""
    if sys.stdout is None:
        return True
    if not hasattr(select, "poll"):
        return False
    poller = select.poll()
    try:
        poller.register(sys.stdout, 0)
    except ValueError:  # no file of the system
        return False
    return any(event & select.POLLERR for _, event in poller.poll(0))


def styled(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """Return a text with its style, in a terminal where colours are not refused."""
    if not in_terminal() or os.environ.get("NO_COLOR"):  # https://no-color.org
        return text
    return click.style(text, fg=fg, bold=bold or None, dim=dim or None)


def print_json(value: object) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_aside(text: str) -> None:
    """Print a text that is no part of the result, on the error output."""
    click.echo(text, err=True)
