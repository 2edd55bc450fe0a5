"""Tables for a terminal, plain lines for a pipe, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

LARGE = 5_000
"""Keys in a store from which on a progress bar is shown."""


@contextmanager
def progress(label: str, length: int | None) -> Iterator[Callable[[int], object]]:
    """Show a progress bar on the error output, if that is a terminal and the job is long.

    It yields a function that advances the bar by a number of steps, of which `length` is the most.
    """
    if length is None or length < LARGE or not sys.stderr.isatty():
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
    lines = [[_text_of(cell) for cell in row] for row in rows]
    if not in_terminal():
        for line in lines:
            click.echo("\t".join(line))
        return
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    numeric = [all(_is_number(cell) for cell in column) for column in zip(*rows, strict=True)]

    def aligned(line: Sequence[str]) -> str:
        cells = zip(line, widths, numeric, strict=True)
        return "  ".join(c.rjust(width) if n else c.ljust(width) for c, width, n in cells).rstrip()

    click.echo(styled(aligned(header), bold=True))
    for number, line in enumerate(lines):
        shown = aligned(line)
        if colours:
            shown = styled(shown[: widths[0]], fg=colours[number]) + shown[widths[0] :]
        click.echo(shown)


def _is_number(cell: str | float) -> bool:
    return cell == "" or isinstance(cell, int | float)


def _text_of(cell: str | float) -> str:
    """Return the text of a cell, escaped: a name in the store may hold control characters."""
    text = f"{cell:.1f}" if isinstance(cell, float) else str(cell)
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def in_terminal() -> bool:
    """Whether the output is a terminal."""
    return sys.stdout.isatty()


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
