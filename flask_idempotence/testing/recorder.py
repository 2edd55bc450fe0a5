"""The signals of an application, recorded in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from flask import Flask

from ..request.proxies import unproxied
from ..signals import ALL_SIGNALS, SignalName


class SignalRecorder:
    """The signals that were sent within a block.

    Attributes:
        events: pairs of a signal's name and its arguments, in order.
    """

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    @property
    def names(self) -> list[str]:
        """The names of the signals sent, in order."""
        return [name for name, _ in self.events]

    def count(self, name: SignalName) -> int:
        """Return how often the signal of this name was sent."""
        return self.names.count(name)


@contextmanager
def record_signals(app: Flask) -> Iterator[SignalRecorder]:
    """Record every signal that an application sends within a block, in a `SignalRecorder`."""
    recorder = SignalRecorder()
    with ExitStack() as stack:
        for signal in ALL_SIGNALS:

            def note(_app: Flask, /, *, _name: str = signal.name, **arguments: Any) -> None:
                recorder.events.append((_name, arguments))

            stack.enter_context(signal.connected_to(note, sender=unproxied(app)))
        yield recorder
