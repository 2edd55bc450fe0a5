"""The views of the signals: a screen that is refreshed in place, and lines for a pipe."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence

import click

from ..output import aligned, print_aside, print_columns, styled
from .feed import COLUMNS, Event

WINDOWS = (10, 60)
"""Seconds over which rates are taken."""

FRAME_EVERY = 0.5
"""Seconds between two frames of the screen, at least."""

_COLOURS = {
    "replayed": "cyan",
    "rejected": "yellow",
    "released": "yellow",
    "lease_lost": "red",
    "store_failed": "red",
}

_Place = tuple[str, str, str]


class Rates:
    """Events by mode, outcome and endpoint, counted by the second of their arrival."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._seconds: defaultdict[_Place, Counter[int]] = defaultdict(Counter)
        self._totals: Counter[_Place] = Counter()

    def add(self, event: Event) -> None:
        """Count an event."""
        place = (event.mode, event.outcome, event.endpoint or "-")
        self._seconds[place][int(self._clock())] += 1
        self._totals[place] += 1

    def rows(self) -> list[tuple[str | float, ...]]:
        """Return rates, total, mode, outcome and endpoint; the highest latest rate first."""
        now = self._clock()
        for counts in self._seconds.values():
            for second in [each for each in counts if each <= int(now) - max(WINDOWS)]:
                del counts[second]
        rates = {
            place: [self._rate(place, window, now) for window in WINDOWS] for place in self._totals
        }
        order = sorted(rates, key=lambda place: ([-rate for rate in rates[place]], place))
        return [(*rates[place], self._totals[place], *place) for place in order]

    def _rate(self, place: _Place, window: int, now: float) -> float:
        first = int(now) - window + 1
        count = sum(n for second, n in self._seconds[place].items() if second >= first)
        return count / max(1.0, min(now - first, now - self._began))


class Lines:
    """A line for each event; notices go to the error output."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._notices: list[str] = []

    def add(self, event: Event) -> None:
        """Print an event."""
        if self._as_json:
            click.echo(json.dumps(event.as_json()))
        else:
            print_columns(event.as_row())

    def refresh(self, notices: Sequence[str]) -> None:
        """Print the notices that were not there before."""
        for notice in notices:
            if notice not in self._notices:
                print_aside(notice)
        self._notices = list(notices)

    def close(self, notices: Sequence[str]) -> None:
        """Print the last notices."""
        self.refresh(notices)


class Screen:
    """Rates, and the latest events under them."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._latest: deque[Event] = deque(maxlen=200)
        self._next_at = 0.0
        self._is_clear = False

    def add(self, event: Event) -> None:
        """Count an event, and keep it for the next frame."""
        self._rates.add(event)
        self._latest.appendleft(event)

    def refresh(self, notices: Sequence[str]) -> None:
        """Show the next frame, if it is time."""
        if (now := time.monotonic()) < self._next_at:
            return
        self._next_at = now + FRAME_EVERY
        size = shutil.get_terminal_size()
        lines = list(self._frame(notices, size.columns, size.lines - 1))[: size.lines - 1]
        # In place, without scrolling: no wrapping, and the rest of each line is erased.
        home = "\x1b[H" if self._is_clear else "\x1b[2J\x1b[H"
        self._is_clear = True
        text = "".join(f"{line}\x1b[K\n" for line in lines)
        click.echo(f"\x1b[?7l{home}{text}\x1b[J\x1b[?7h", nl=False, color=True)

    def close(self, notices: Sequence[str]) -> None:
        """Leave the last frame on the screen, and the cursor under it."""
        self._next_at = 0.0
        self.refresh(notices)

    def _frame(self, notices: Sequence[str], width: int, height: int) -> Iterator[str]:
        used = 0
        for number, notice in enumerate(notices):
            for line in click.wrap_text(notice, width).splitlines():
                used += 1
                yield styled(line, bold=number == 0, fg="yellow" if number else None)
        if not self._latest:
            return
        rows, room = self._rates.rows(), (height - used - 4) // 2
        header = (*(f"{window} s" for window in WINDOWS), "TOTAL", "MODE", "OUTCOME", "ENDPOINT")
        yield ""
        yield from _table(aligned(header, rows[: max(1, room)]), width)
        left = height - used - 4 - min(len(rows), max(1, room))
        latest = list(self._latest)[: max(0, left)]
        if latest:
            yield ""
            colours = [_COLOURS.get(event.signal) for event in latest]
            yield from _table(
                aligned(COLUMNS, [event.as_row() for event in latest]), width, colours
            )


def _table(lines: list[str], width: int, colours: Sequence[str | None] = ()) -> Iterator[str]:
    heading, *rest = (line[:width] for line in lines)
    yield styled(heading, bold=True)
    for number, line in enumerate(rest):
        yield styled(line, fg=colours[number]) if colours else line
