"""The messages of the processes: received on a thread, counted once, and turned into events."""

from __future__ import annotations

import json
import math
import queue
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import index
from typing import Any, NamedTuple

from ...engine.figures import PASSED_ON
from ...errors import StoreError
from ...stores.broadcast import BroadcastingStore, Subscription
from ...stores.process import start_daemon
from .. import kind_of

MOST_MESSAGES = 1_000
"""Messages that wait for the output; further ones are lost, and counted."""

SILENCE = 5.0
"""Seconds without a message after which the command subscribes again: after a failover, or behind
a firewall that was restarted, the connection may be open and of no use."""

RETRY_EVERY = 0.5

PRESENT_FOR = 5.0
"""Seconds for which a process counts after a message; it sends one a second."""


class Event(NamedTuple):
    """A signal of a process."""

    time: datetime
    signal: str
    mode: str
    endpoint: str | None
    key: str | None
    outcome: str
    facts: dict[str, float | str]
    worker: str

    def as_json(self) -> dict[str, object]:
        """Return the fields of the object that stands for it in JSON."""
        return {
            "time": self.time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "worker": self.worker,
            "signal": self.signal,
            "mode": self.mode,
            "endpoint": self.endpoint,
            "key": self.key,
            "outcome": self.outcome,
            **self.facts,
        }

    def as_row(self) -> list[str]:
        """Return the columns of the line that stands for it."""
        return [
            self.time.astimezone().strftime("%H:%M:%S"),
            self.signal,
            self.mode,
            self.endpoint or "-",
            self.outcome,
            self.key or "-",
            self.worker,
            " ".join(
                f"{name}={fact:g}s" if isinstance(fact, int | float) else f"{name}={fact}"
                for name, fact in self.facts.items()
                if fact
            ),
        ]


COLUMNS = ("TIME", "SIGNAL", "MODE", "ENDPOINT", "OUTCOME", "KEY", "WORKER", "")


class Feed:
    """A subscription that comes back after a failure of the store.

    Attributes:
        problem: the class of the error, while the store does not answer.
        missed: messages that were lost because the output was too slow.

    Raises:
        StoreError: the store does not answer now.
    """

    def __init__(self, store: BroadcastingStore, channel: str) -> None:
        self.problem: str | None = None
        self.missed: int = 0
        self._store, self._channel = store, channel
        self._messages: queue.Queue[bytes] = queue.Queue(MOST_MESSAGES)
        self._first = store.subscribe(channel)
        start_daemon(self._run, "flask-idempotence-feed")

    def take(self, seconds: float) -> Iterator[bytes]:
        """Yield the messages that have arrived, after waiting so many seconds for the first."""
        try:
            yield self._messages.get(timeout=seconds)
            while True:
                yield self._messages.get_nowait()
        except queue.Empty:
            pass

    def _run(self) -> None:
        self._receive(self._first)
        while True:
            try:
                subscription = self._store.subscribe(self._channel)
            except StoreError as error:
                self.problem = kind_of(error)
                time.sleep(RETRY_EVERY)
            else:
                self.problem = None
                self._receive(subscription)

    def _receive(self, subscription: Subscription) -> None:
        """Receive messages until the connection ends, or is silent."""
        try:
            while True:
                message = subscription.receive(SILENCE)
                try:
                    self._messages.put_nowait(message)
                except queue.Full:
                    self.missed += 1
        except StoreError:
            subscription.close()


@dataclass(slots=True)
class Worker:
    """A process that publishes, as its last message describes it."""

    name: str
    number: int
    dropped: int
    heard_at: float


class Workers:
    """The processes that publish, by a name that no other process gets."""

    def __init__(self) -> None:
        self._by_run: dict[str, Worker] = {}

    def read(self, message: bytes) -> Sequence[Event]:
        """Return the events of a message; none for one that came before, or of another origin."""
        try:
            content = json.loads(message)
            name, run = _text(content["worker"]), _text(content["run"])
            number, dropped = (index(_fact(content[each])) for each in ("number", "dropped"))
            events = [_event(*event, worker=name) for event in content["events"]]
        except (ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError):
            return ()
        worker = self._by_run.setdefault(run, Worker(name, 0, 0, 0.0))
        worker.heard_at = time.monotonic()
        if number <= worker.number:
            return ()
        worker.number, worker.dropped = number, dropped
        return events

    @property
    def present(self) -> list[str]:
        """The names of those that were heard a moment ago."""
        earliest = time.monotonic() - PRESENT_FOR
        return sorted(each.name for each in self._by_run.values() if each.heard_at > earliest)

    @property
    def dropped(self) -> int:
        """How many events they have dropped, because their queues were full."""
        return sum(each.dropped for each in self._by_run.values())


def _event(
    time: float,
    signal: object,
    mode: object,
    endpoint: object,
    key: object,
    outcome: object,
    facts: dict[str, float | str],
    *,
    worker: str,
) -> Event:
    moment = datetime.fromtimestamp(time, UTC)
    moment.astimezone()  # in a year that the calendar has here, too
    name = _text(signal)
    place, digest = (None if each is None else _text(each) for each in (endpoint, key))
    passed_on = {each: _fact(facts[each]) for each in PASSED_ON.get(name, ()) if each in facts}
    return Event(moment, name, _text(mode), place, digest, _text(outcome), passed_on, worker)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _fact(value: Any) -> Any:
    """Return a text, or a number that a float can hold."""
    if not isinstance(value, str) and not math.isfinite(value):
        raise ValueError
    return value
