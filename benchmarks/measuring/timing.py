"""Timing WSGI applications against each other in one process."""

import gc
import operator
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

BLOCK = 100
"""Requests of each variant between two collections of garbage; also the size of one sample of a
ratio, for its spread."""


Prepare = Callable[[int], list[dict]]
"""Makes so many WSGI environments, each good for one request; it is not timed."""


DONE = "benchmark.done"
"""The mark that the work leaves in the environment of its request."""


@dataclass
class Variant:
    """One way to answer a request: by doing the work, or where it `replays` by not doing it.

    A refusal does not do it either, and has a `status` of its own.
    """

    name: str
    app: Any
    prepare: Prepare
    replays: bool = False
    status: str = "200"
    blocks: list[list[int]] = field(default_factory=list)

    @property
    def nanoseconds(self) -> list[int]:
        return [time for block in self.blocks for time in block]


class Server:
    """The least that a WSGI server does for a request: call, read the body, close it.

    Attributes:
        clock: returns nanoseconds; a benchmark may take those of the processor.
    """

    clock = staticmethod(time.perf_counter_ns)

    def __init__(self):
        self.status = ""

    def start_response(self, status, *_):
        self.status = status

    def send(self, app, environ) -> bytes:
        chunks = app.wsgi_app(environ, self.start_response)
        try:
            return b"".join(chunks)
        finally:
            chunks.close()

    def time(self, variant: Variant, environ) -> int:
        """Answer one request, as its variant has to; return its nanoseconds."""
        start = self.clock()
        body = self.send(variant.app, environ)
        end = self.clock()
        if not self.status.startswith(variant.status):
            raise RuntimeError(f"{variant.name} answered {self.status}: {body!r}")
        if (DONE in environ) is variant.replays:
            raise RuntimeError(f"{variant.name} did the work when it should not, or did it not")
        return end - start


def interleave(title: str, variants: list[Variant], requests: int) -> None:
    """Send each variant so many requests, one of each in turn, in random order."""
    _run_block(variants, min(BLOCK, requests))  # warms everything up, and is not counted
    for variant in variants:
        variant.blocks.clear()
    shown = time.monotonic()
    for done in range(0, requests, BLOCK):
        if time.monotonic() > shown + 2:
            shown = time.monotonic()
            print(f"... {title}: {done} of {requests}", file=sys.stderr, flush=True)
        _run_block(variants, min(BLOCK, requests - done))


def _run_block(variants: list[Variant], count: int) -> None:
    environs = [variant.prepare(count) for variant in variants]
    block: list[list[int]] = [[] for _ in variants]
    order = list(range(len(variants)))
    server = Server()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for number in range(count):
            random.shuffle(order)  # who follows whom must not matter
            for which in order:
                block[which].append(server.time(variants[which], environs[which][number]))
    finally:
        gc.enable()
        gc.unfreeze()
    for variant, times in zip(variants, block, strict=True):
        variant.blocks.append(times)


@dataclass(frozen=True)
class Spread:
    """A median, and the first and last decile."""

    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, values: list) -> "Spread":
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        deciles = statistics.quantiles(values, n=10, method="inclusive")
        return cls(statistics.median(values), deciles[0], deciles[8])


def ratio(one: Variant, other: Variant) -> Spread:
    """Compare two variants that were interleaved."""
    return _compared(operator.truediv, one, other)


def difference(one: Variant, other: Variant) -> Spread:
    """Return the nanoseconds by which one variant is slower than another, by the medians."""
    return _compared(operator.sub, one, other)


def _compared(how: Callable[[float, float], float], one: Variant, other: Variant) -> Spread:
    """Compare the medians of all requests; the spread is that of the same figure over the blocks.

    Both went through each block at the same time.
    """
    of_blocks = Spread.of(
        [
            how(statistics.median(mine), statistics.median(its))
            for mine, its in zip(one.blocks, other.blocks, strict=True)
        ]
    )
    whole = how(statistics.median(one.nanoseconds), statistics.median(other.nanoseconds))
    return Spread(whole, of_blocks.p10, of_blocks.p90)
