"""Instrumentation: measurements that no signal carries; free when unused."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

_logger = logging.getLogger("flask_idempotence")

T = TypeVar("T")


class Instrument:
    """Takes measurements, each on the thread that it is about; override those of interest."""

    def store_call(self, operation: str, seconds: float) -> None:
        """Take the duration of a store operation, answered or not."""

    def renewal_delay(self, seconds: float) -> None:
        """Take the delay between the time when a renewal was due and its beginning."""

    def retry_queue_length(self, count: int) -> None:
        """Take the number of settlements in this process's retry queue."""


class Instrumentation:
    """The instruments of one application; their exceptions are logged, never passed on."""

    def __init__(self) -> None:
        self._instruments: tuple[Instrument, ...] = ()

    def add(self, instrument: Instrument) -> None:
        """Add an instrument."""
        self._instruments += (instrument,)

    def timed(self, operation: str, call: Callable[[], T]) -> T:
        """Carry out a store operation and measure its duration."""
        if not self._instruments:
            return call()
        began = time.perf_counter()
        try:
            return call()
        finally:
            seconds = time.perf_counter() - began
            self.measure(lambda instrument: instrument.store_call(operation, seconds))

    def measure(self, pass_on: Callable[[Instrument], None]) -> None:
        """Pass a measurement on to each instrument."""
        for instrument in self._instruments:
            try:
                pass_on(instrument)
            except Exception:
                _logger.exception("An instrument failed.")
