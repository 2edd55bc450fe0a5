"""`flask idempotence watch`: show the signals of the running processes as they are sent.

`feed` receives them, `views` shows them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
from flask.cli import with_appcontext

from ...engine.publisher import channel_of
from ...signals import ALL_SIGNALS
from ...stores.base import Store
from ...stores.broadcast import BroadcastingStore
from ..context import as_json, state_of, this_app
from ..output import escaped, in_terminal, is_closed
from .feed import Event, Feed, Workers
from .views import Lines, Screen

TICK = 0.25
"""Seconds of waiting for a message, after which notices and the time are looked at again."""

PATIENCE = 3.0
"""Seconds without a sign of any process until a notice says so; a process gives one a second."""


@click.command("watch")
@click.option(
    "--signal",
    "names",
    type=click.Choice([signal.name for signal in ALL_SIGNALS]),
    multiple=True,
    help="Only this signal; may be repeated.",
)
@click.option(
    "--endpoint", metavar="ENDPOINT", help="Only this endpoint; for once, only this scope."
)
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End after so many seconds.",
)
@as_json
@with_appcontext
def command(
    *, names: tuple[str, ...], endpoint: str | None, seconds: float | None, as_json: bool
) -> None:
    """Show the signals of all processes, live.

    The processes publish them through Redis if IDEMPOTENCE_WATCH is true.

    A terminal shows rates per second by mode, outcome and endpoint, and the latest signals. In a
    pipe, each signal is a line; with --json, an object on a line of its own. Ctrl-C ends the
    command.
    """
    state = state_of(this_app())
    store = _broadcasting(state.store)
    feed, workers = Feed(store, channel_of(state.config.prefix)), Workers()
    is_screen = in_terminal() and not as_json and os.environ.get("TERM") != "dumb"
    view = Screen() if is_screen else Lines(as_json=as_json)
    status = _Status(feed, workers, is_on=state.config.watch)
    until = float("inf") if seconds is None else time.monotonic() + seconds
    with _readers_may_leave():
        try:
            while time.monotonic() < until and not is_closed():
                for message in feed.take(min(TICK, max(0.0, until - time.monotonic()))):
                    for event in workers.read(message):
                        if _is_wanted(event, names, endpoint):
                            view.add(event)
                view.refresh(status.notices())
        except KeyboardInterrupt:
            pass
        view.close(status.notices(at_end=True))


def _is_wanted(event: Event, names: tuple[str, ...], endpoint: str | None) -> bool:
    return (not names or event.signal in names) and endpoint in (None, event.endpoint)


def _broadcasting(store: Store) -> BroadcastingStore:
    if isinstance(store, BroadcastingStore):
        return store
    kind = "a database" if store.shared else "the memory of each process"
    raise click.ClickException(
        f"Signals are passed on by Redis, and the store is {kind}. Set IDEMPOTENCE_STORAGE_URI to "
        "a Redis server, such as redis://localhost:6379/0; or use the metrics and the log."
    )


class _Status:
    """The notices about the processes and the store."""

    def __init__(self, feed: Feed, workers: Workers, *, is_on: bool) -> None:
        self._feed, self._workers, self._is_on = feed, workers, is_on
        self._silent_since = time.monotonic()

    def notices(self, *, at_end: bool = False) -> list[str]:
        """Return the processes that publish, or why there are none, and losses."""
        notices = [self._about_processes(at_end)]
        if dropped := self._workers.dropped:
            notices.append(f"{dropped} signals were dropped: the queue of a process was full.")
        if missed := self._feed.missed:
            notices.append(f"{missed} messages were lost: the output was too slow for them.")
        return [escaped(notice) for notice in notices]

    def _about_processes(self, at_end: bool) -> str:
        present, now = self._workers.present, time.monotonic()
        if present or self._feed.problem:
            self._silent_since = now
        if self._feed.problem:
            return f"The store does not answer ({self._feed.problem}); trying again."
        if present:
            noun = "process publishes" if len(present) == 1 else "processes publish"
            return f"{len(present)} {noun}: {', '.join(present)}."
        if not at_end and now < self._silent_since + PATIENCE:
            return "Waiting for the processes."
        return f"No process publishes its signals. {_ON if self._is_on else _OFF} {_FROM_WHEN}"


_ON = "IDEMPOTENCE_WATCH is on in these settings: restart the processes that began without it."
_OFF = "Set IDEMPOTENCE_WATCH = True, and restart the processes."
_FROM_WHEN = "A process publishes from its first guarded request on."


@contextmanager
def _readers_may_leave() -> Iterator[None]:
    """End well when the reader of the output has gone."""
    try:
        yield
    except BrokenPipeError:
        # The interpreter flushes the output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
