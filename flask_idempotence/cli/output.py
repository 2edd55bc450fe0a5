"""What a command prints: tables for a terminal, plain lines for a pipe."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import click

LARGE = 5_000
"""Keys in a store from which on a progress bar is shown."""


class Progress(Protocol):
    """Something that is told how far a command has come."""

    def update(self, n_steps: int) -> None:
        """Note so many steps more."""


class _Unseen:
    def update(self, n_steps: int) -> None:
        """Nobody is looking."""


@contextmanager
def progress(label: str, length: int | None) -> Iterator[Progress]:
    """Show a progress bar on the error output, if that is a terminal and there is much to do.

    Args:
        label: what is done.
        length: how many steps there are at most; None for unknown.
    """
    if length is None or length < LARGE or not sys.stderr.isatty():
        yield _Unseen()
        return
    # Without an estimate of the time left: the keys of others come in between at any time.
    with click.progressbar(
        length=length, label=label, file=sys.stderr, show_eta=False, width=24
    ) as bar:
        yield bar
        bar.update(length - bar.pos)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows: aligned under a heading in a terminal, separated by tabs in a pipe.

    Numbers are aligned to the right. A colour in a cell is given by `Coloured`.
    """
    lines = [[_cell(value) for value in row] for row in rows]
    if not in_terminal():
        for line in lines:
            click.echo("\t".join(line))
        return
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    right = [all(_is_number(value) for value in column) for column in zip(*rows, strict=True)]
    click.echo(_line([styled(name, bold=True) for name in header], header, widths, right))
    for row, line in zip(rows, lines, strict=True):
        shown = [
            styled(text, fg=value.colour) if isinstance(value, Coloured) else text
            for value, text in zip(row, line, strict=True)
        ]
        click.echo(_line(shown, line, widths, right))


class Coloured(str):
    """A text in a colour.

    Attributes:
        colour: its name, or None.
    """

    __slots__ = ("colour",)
    colour: str | None

    def __new__(cls, text: str, colour: str | None) -> Coloured:
        """Make one."""
        made = super().__new__(cls, text)
        made.colour = colour
        return made


def _line(
    shown: Sequence[str], texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]
) -> str:
    padded = [
        " " * (width - len(text)) + cell if to_right else cell + " " * (width - len(text))
        for cell, text, width, to_right in zip(shown, texts, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _is_number(value: Any) -> bool:
    return value == "" or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, float) else printable(str(value))


def printable(text: str) -> str:
    """Return a text that does nothing to a terminal: names in a store may be anybody's."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def in_terminal() -> bool:
    """Whether somebody reads what is printed."""
    return sys.stdout.isatty()


def styled(text: str, **style: Any) -> str:
    """Return a text with its style, where it is read on a terminal and colours are not refused."""
    if not in_terminal() or os.environ.get("NO_COLOR"):  # https://no-color.org
        return text
    return click.style(text, **style)


def print_json(value: Any) -> None:
    """Print a value for a program."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def aside(text: str) -> None:
    """Say something that is no part of the result: on the error output."""
    click.echo(text, err=True)
