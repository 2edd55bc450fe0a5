"""`flask idempotence watch`: print the signals of the running processes as they are sent."""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from time import monotonic, sleep
from typing import Any

import click
from flask import current_app

from ..engine.engine import engine_of
from ..engine.figures import PASSED_ON
from ..engine.publisher import channel_of
from ..errors import StoreError
from ..signals import ALL_SIGNALS
from ..stores.base import BroadcastingStore
from .output import as_json, echo, escaped, print_aside, print_json

PAUSE = 0.25
"""Seconds between two looks for messages."""

SILENCE = 5.0
"""Seconds without a message, even of its own, after which the command subscribes again: after a
failover, or behind a firewall that was restarted, the connection may be open and of no use."""

RETRY_EVERY = 0.5

_ON = "Waiting for signals. A process publishes from its first guarded request on."
_OFF = (
    "IDEMPOTENCE_WATCH is off in these settings: processes that run with them publish nothing. "
    "Set IDEMPOTENCE_WATCH = True, and restart them."
)
_FIELDS = ("signal", "mode", "endpoint", "key", "outcome")
_COUNTED = ("mode", "endpoint", "outcome")
_COLUMNS = ("signal", "mode", "endpoint", "outcome", "key", "worker")

Event = dict[str, Any]
"""A signal of a process: its time, local and aware, its worker, its fields and its facts."""


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
def watch(
    *, names: tuple[str, ...], endpoint: str | None, seconds: float | None, as_json: bool
) -> None:
    """Print the signals of all processes, live, and a summary.

    The processes publish them through Redis if IDEMPOTENCE_WATCH is true.

    Each signal is a line; with --json, an object on a line of its own. Ctrl-C ends the command.
    The summary and notices go to the error output.
    """
    engine = engine_of(current_app)
    if not isinstance(engine.store, BroadcastingStore):
        kind = "a database" if engine.store.shared else "the memory of each process"
        raise click.ClickException(
            f"Signals are passed on by Redis, and the store is {kind}. Set "
            "IDEMPOTENCE_STORAGE_URI to a Redis server, such as redis://localhost:6379/0; or use "
            "the metrics and the log."
        )
    until = math.inf if seconds is None else monotonic() + seconds
    greeting = _ON if engine.config.watch else _OFF
    messages = _messages(engine.store, channel_of(engine.config.prefix), until, greeting)
    reader, counts = Reader(), Counter[tuple[str, ...]]()
    try:
        with suppress(KeyboardInterrupt):
            for event in chain.from_iterable(map(reader.read, messages)):
                is_chosen = not names or event["signal"] in names
                if is_chosen and endpoint in (None, event["endpoint"]):
                    counts[tuple(str(event[each] or "-") for each in _COUNTED)] += 1
                    print_event(event, as_json=as_json)
        _print_summary(counts, reader)
    except BrokenPipeError:  # the reader of the output has gone, which is no error
        # The interpreter flushes the output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _messages(
    store: BroadcastingStore, channel: str, until: float, greeting: str
) -> Iterator[bytes]:
    """Yield the messages of a channel, and subscribe again after a failure of the store.

    One thread waits and prints: each look ends with a message of its own, which also shows that
    the subscription works. Meanwhile, the server keeps the others.
    """
    own, subscription = os.urandom(16).hex().encode(), store.subscribe(channel)
    print_aside(greeting)
    while True:
        with closing(subscription), suppress(StoreError):  # its connection has ended, or is silent
            while monotonic() < until:
                with suppress(StoreError):
                    store.publish(channel, own)
                while (message := subscription.receive(min(SILENCE, until - monotonic()))) != own:
                    yield message
                sleep(PAUSE)
        is_away = False
        while monotonic() < until:
            try:
                subscription = store.subscribe(channel)
                break
            except StoreError as error:
                if not is_away:
                    print_aside(f"The store does not answer ({error.kind}); trying again.")
                is_away = True
                sleep(RETRY_EVERY)
        else:
            return
        if is_away:
            print_aside("The store answers again.")


def print_event(event: Event, *, as_json: bool) -> None:
    if as_json:
        moment = event["time"].astimezone(UTC).isoformat(timespec="milliseconds")
        print_json(event | {"time": moment.replace("+00:00", "Z")}, indent=None)
        return
    known = {"time", *_COLUMNS}
    facts = " ".join(
        f"{name}={fact}" if isinstance(fact, str) else f"{name}={fact:g}s"
        for name, fact in event.items()
        if fact and name not in known
    )
    row = (f"{event['time']:%H:%M:%S}", *(event[name] or "-" for name in _COLUMNS), facts)
    echo("\t".join(map(escaped, row)))


def _print_summary(counts: Counter[tuple[str, ...]], reader: Reader) -> None:
    print_aside(f"Signals: {counts.total()}. Processes that have published: {len(reader.runs)}.")
    for names, count in sorted(counts.items()):
        print_aside("  ".join((f"{count:6}", *names)))
    if dropped := sum(dropped for _, dropped in reader.runs.values()):
        print_aside(f"{dropped} signals were dropped: the queue of a process was full.")
    if reader.missed:
        print_aside(
            f"{reader.missed} messages were lost: the store was away, or the output too slow."
        )


@dataclass
class Reader:
    # By the name of a run, which no other process gets: the number of its last message, and its
    # count of dropped events.
    runs: dict[str, tuple[int, int]] = field(default_factory=dict)
    missed: int = 0  # messages that have not come, by the numbers of those that have

    def read(self, message: bytes) -> list[Event]:
        """Return the events of a message; none for one that came before, or of another origin."""
        try:
            content = json.loads(message)
            worker, run = str(content["worker"]), str(content["run"])
            number, dropped = (int(float(content[each])) for each in ("number", "dropped"))
            events = [_event(worker, *event) for event in content["events"]]
        except (ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError):
            return []
        last, _ = self.runs.get(run, (number - 1, 0))
        if number <= last:
            return []
        self.missed += number - last - 1
        self.runs[run] = number, dropped
        return events


def _event(worker: str, moment: float, *fields: Any) -> Event:
    *names, facts = fields
    event: Event = {
        "time": datetime.fromtimestamp(moment, UTC).astimezone(),
        "worker": worker,
        **dict(zip(_FIELDS, (each and str(each) for each in names), strict=True)),
    }
    for name in PASSED_ON.get(event["signal"], ()):
        if name in facts:
            fact = event[name] = facts[name]
            if not isinstance(fact, str) and not math.isfinite(fact):
                raise ValueError
    return event
