"""`flask idempotence watch`: print the signals of the running processes as they are sent."""

from __future__ import annotations

import json
import math
import os
import queue
import select
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from operator import index
from typing import Any, NamedTuple

import click
from flask.cli import with_appcontext

from ..engine.figures import PASSED_ON
from ..engine.publisher import channel_of
from ..errors import StoreError
from ..signals import ALL_SIGNALS
from ..stores.base import BroadcastingStore, Subscription
from ..stores.process import start_daemon
from .causes import kind_of
from .context import as_json, state_of, this_app
from .output import echo, escaped, print_aside, print_json

TICK = 0.25
"""Seconds of waiting for a message, after which the time and the reader are checked again."""

MOST_MESSAGES = 1_000
"""Messages that wait for the output; further ones are lost, and counted."""

PING_EVERY, SILENCE = 2.0, 5.0
"""Seconds between two empty messages of the command to itself, and without any, after which it
subscribes again: after a failover, or behind a firewall that was restarted, the connection may be
open and of no use."""

RETRY_EVERY = 0.5

_ON = "Waiting for signals. A process publishes from its first guarded request on."
_OFF = (
    "IDEMPOTENCE_WATCH is off in these settings: processes that run with them publish nothing. "
    "Set IDEMPOTENCE_WATCH = True, and restart them."
)


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
def watch(
    *, names: tuple[str, ...], endpoint: str | None, seconds: float | None, as_json: bool
) -> None:
    """Print the signals of all processes, live, and a summary.

    The processes publish them through Redis if IDEMPOTENCE_WATCH is true.

    Each signal is a line; with --json, an object on a line of its own. Ctrl-C ends the command.
    The summary and notices go to the error output.
    """
    state = state_of(this_app())
    if not isinstance(state.store, BroadcastingStore):
        kind = "a database" if state.store.shared else "the memory of each process"
        raise click.ClickException(
            f"Signals are passed on by Redis, and the store is {kind}. Set "
            "IDEMPOTENCE_STORAGE_URI to a Redis server, such as redis://localhost:6379/0; or use "
            "the metrics and the log."
        )
    feed, reader = Feed(state.store, channel_of(state.config.prefix)), Reader()
    print_aside(_ON if state.config.watch else _OFF)
    until = float("inf") if seconds is None else time.monotonic() + seconds
    counts: Counter[tuple[str, str, str]] = Counter()
    with _reader_may_leave(), closing(feed):
        with suppress(KeyboardInterrupt):
            while time.monotonic() < until and not _is_closed():
                messages = feed.take(min(TICK, max(0.0, until - time.monotonic())))
                for event in chain.from_iterable(map(reader.read, messages)):
                    if (not names or event.signal in names) and endpoint in (None, event.endpoint):
                        counts[event.mode, event.endpoint or "-", event.outcome] += 1
                        if as_json:
                            print_json(event.as_json(), indent=None)
                        else:
                            echo("\t".join(map(escaped, event.as_row())))
                while feed.notices:
                    print_aside(feed.notices.popleft())
                feed.ping()
        _print_summary(counts, feed, reader)


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """End without an error when the reader of the output has gone."""
    try:
        yield
    except BrokenPipeError:
        # The interpreter flushes the output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_closed() -> bool:
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


def _print_summary(counts: Counter[tuple[str, str, str]], feed: Feed, reader: Reader) -> None:
    print_aside(f"Signals: {counts.total()}. Processes that have published: {len(reader.runs)}.")
    for (mode, endpoint, outcome), count in sorted(counts.items()):
        print_aside(f"{count:6}  {mode}  {endpoint}  {outcome}")
    if dropped := sum(dropped for _, dropped in reader.runs.values()):
        print_aside(f"{dropped} signals were dropped: the queue of a process was full.")
    if feed.missed:
        print_aside(f"{feed.missed} messages were lost: the output was too slow for them.")


class Event(NamedTuple):
    """A signal of a process."""

    time: datetime
    worker: str
    signal: str
    mode: str
    endpoint: str | None
    key: str | None
    outcome: str
    facts: dict[str, float | str]

    def as_json(self) -> dict[str, object]:
        *rest, facts = self
        moment = self.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {**dict(zip(self._fields, rest, strict=False)), "time": moment, **facts}

    def as_row(self) -> list[str]:
        moment = self.time.astimezone().strftime("%H:%M:%S")
        facts = " ".join(
            f"{name}={fact:g}s" if isinstance(fact, int | float) else f"{name}={fact}"
            for name, fact in self.facts.items()
            if fact
        )
        place = (self.mode, self.endpoint or "-", self.outcome, self.key or "-", self.worker)
        return [moment, self.signal, *place, facts]


class Feed:
    """A subscription that is renewed after a failure of the store; its thread receives messages.

    Attributes:
        missed: messages that were lost because the output was too slow.
        notices: texts about the store, to be printed.

    Raises:
        StoreError: the store does not answer now.
    """

    def __init__(self, store: BroadcastingStore, channel: str) -> None:
        self.missed: int = 0
        self.notices: deque[str] = deque()
        self._ended = threading.Event()
        self._store, self._channel, self._ping_at = store, channel, 0.0
        self._messages: queue.Queue[bytes] = queue.Queue(MOST_MESSAGES)
        self._first = store.subscribe(channel)
        start_daemon(self._run, "flask-idempotence-feed")

    def take(self, seconds: float) -> Iterator[bytes]:
        """Yield the messages that have arrived, after waiting so many seconds for the first."""
        with suppress(queue.Empty):
            yield self._messages.get(timeout=seconds)
            while True:
                yield self._messages.get_nowait()

    def close(self) -> None:
        """End the thread: the message wakes it."""
        self._ended.set()
        self._ping_at = 0.0
        self.ping()

    def ping(self) -> None:
        """Publish an empty message now and then, which shows that the subscription works."""
        if (now := time.monotonic()) >= self._ping_at:
            self._ping_at = now + PING_EVERY
            with suppress(StoreError):
                self._store.publish(self._channel, b"")

    def _run(self) -> None:
        subscription: Subscription | None = self._first
        is_away = False
        while not self._ended.is_set():
            try:
                if subscription is None:
                    subscription = self._store.subscribe(self._channel)
                    if is_away:
                        self.notices.append("The store answers again.")
                    is_away = False
                self._messages.put_nowait(subscription.receive(SILENCE))
            except queue.Full:
                self.missed += 1
            except StoreError as error:
                if subscription is not None:  # its connection has ended, or is silent
                    subscription.close()
                    subscription = None
                    continue
                if not is_away:
                    kind = kind_of(error)
                    self.notices.append(f"The store does not answer ({kind}); trying again.")
                is_away = True
                self._ended.wait(RETRY_EVERY)
        if subscription is not None:
            subscription.close()


class Reader:
    """Turns messages into events.

    Attributes:
        runs: the number of the last message of each process, and its count of dropped events, by
            a name that no other process gets.
    """

    def __init__(self) -> None:
        self.runs: dict[str, tuple[int, int]] = {}

    def read(self, message: bytes) -> list[Event]:
        """Return the events of a message; none for one that came before, or of another origin."""
        try:
            content = json.loads(message)
            worker, run = _text(content["worker"]), _text(content["run"])
            number, dropped = (index(_fact(content[each])) for each in ("number", "dropped"))
            events = [_event(worker, *event) for event in content["events"]]
        except (ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError):
            return []
        if run in self.runs and number <= self.runs[run][0]:
            return []
        self.runs[run] = number, dropped
        return events


def _event(worker: str, time: float, *rest: Any) -> Event:
    signal, mode, endpoint, key, outcome, facts = rest
    moment = datetime.fromtimestamp(time, UTC)
    moment.astimezone()  # in a year that the calendar has here, too
    place, digest = (None if each is None else _text(each) for each in (endpoint, key))
    facts = {
        each: _fact(facts[each]) for each in PASSED_ON.get(_text(signal), ()) if each in facts
    }
    return Event(moment, worker, signal, _text(mode), place, digest, _text(outcome), facts)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _fact(value: Any) -> Any:
    """Return a text, or a number that a float can hold."""
    if not isinstance(value, str) and not math.isfinite(value):
        raise ValueError
    return value
