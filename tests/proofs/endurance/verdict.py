"""What a long run must show: a line for each figure, those of an early part beside the end's."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .processes import MEBIBYTE
from .soak import Samples

EARLY, EARLY_LASTS = 4 / 20, 2 / 20
END = (17 / 20, 1.0)
"""Parts of a run that are compared: of twenty minutes, two around the fifth and the last three."""

IN_BALANCE = 1.25
"""Lifetimes of a record after which as many expire as are made; the store removes some late."""


@dataclass(frozen=True)
class Line:
    """One figure of a run, early (it has warmed up) and late; `limit` is a share of growth."""

    name: str
    before: float
    after: float
    unit: str = ""
    limit: float | None = None

    @property
    def growth(self) -> float:
        return self.after / self.before - 1 if self.before else float(self.after > 0)

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        return "ok" if self.growth <= self.limit else "FAILED"

    def __str__(self) -> str:
        figures = [f"{figure:.4g} {self.unit}".strip() for figure in (self.before, self.after)]
        grown = f"{100 * self.growth:+.1f} %"
        return f"| {self.name} | {' | '.join(figures)} | {grown} | {self.verdict} |"


def told(lines: Iterable[Line]) -> tuple[str, list[str]]:
    """Return the table of some lines, and those that missed their limit."""
    head = ["| | early | end | growth | |", "|---|---|---|---|---|"]
    lines = [*lines]
    missed = [f"FAILED: {line}" for line in lines if line.verdict == "FAILED"]
    return "\n".join([*head, *map(str, lines)]), missed


def grown(early: dict, end: dict, limit: float) -> tuple[str, list[str]]:
    """Compare figures. The keeper comes and goes: a thread may be doubled."""
    limits = {name: 1.0 if name == "threads" else limit for name in early}
    return told(Line(name, early[name], end[name], limit=limits[name]) for name in early)


def shortest_run(ttl: float) -> float:
    """Return how many seconds a run must last, to be in balance early enough."""
    return IN_BALANCE * ttl / (END[0] - EARLY_LASTS)


@dataclass(frozen=True)
class Limits:
    """Shares by which figures may grow; `times` also of operations that may begin late."""

    processes: float = 0.03
    store: float = 0.03
    times: float = 0.03


def report_of(samples: Samples, limits: Limits) -> tuple[str, list[str]]:
    table, faults = told(lines_of(samples, limits))
    faults += [f"FAILED: {count} x {problem}" for problem, count in samples.problems.items()]
    if samples.late > limits.times:
        faults.append(f"FAILED: {100 * samples.late:.1f} % of the operations began late")
    return table, faults


def lines_of(samples: Samples, limits: Limits) -> Iterable[Line]:
    yield from _of_series(samples, limits)
    ratios = [_median(part) for part in _parts(samples, samples.ratios)]
    yield Line("guarded ÷ unguarded, median", *ratios, limit=limits.times)
    workers, clients, requests = (
        [part[-1] - part[0] for part in _parts(samples, samples.series[name])]
        for name in ("CPU of the workers", "CPU of the clients", "requests")
    )
    # The clients' work is always the same: it measures the machine.
    shares = (ours / theirs for ours, theirs in zip(workers, clients, strict=True))
    yield Line("CPU a request, workers ÷ clients", *shares, limit=limits.times)
    used = (1000 * each / count for each, count in zip(workers, requests, strict=True))
    yield Line("CPU a request", *used, "ms")
    for kind, values in sorted(samples.timing.items()):
        medians = (1000 * _median(part) for part in _parts(samples, values))
        yield Line(f"{kind}, median", *medians, "ms")


def _of_series(samples: Samples, limits: Limits) -> Iterable[Line]:
    for name, values in samples.series.items():
        who, _, what = name.rpartition(" ")
        if who.startswith("CPU") or what == "requests":
            continue
        is_of_process = who.startswith(("worker", "master"))
        limit = limits.processes if is_of_process else limits.store
        parts = _parts(samples, values)
        if what in ("USS", "RSS", "bytes"):
            sizes = [statistics.fmean(part) / MEBIBYTE for part in parts]
            yield Line(f"{who}, {what}" if is_of_process else name, *sizes, "MiB", limit)
        else:
            # Keys come and go in rounds, as rows are pruned.
            average = statistics.fmean if what == "keys" else _median
            title = f"{who}, {what}" if is_of_process else f"{name} in the store"
            yield Line(title, *map(average, parts), limit=limit)


def parts_of(samples: Samples) -> tuple[tuple[float, float], tuple[float, float]]:
    early = max(EARLY, IN_BALANCE * samples.ttl / (samples.ended - samples.began))
    return (early, early + EARLY_LASTS), END


def _parts(samples: Samples, values: Sequence[tuple[float, float]]) -> list[list[float]]:
    length = samples.ended - samples.began
    return [
        [
            value
            for moment, value in values
            if begin * length <= moment - samples.began <= end * length
        ]
        for begin, end in parts_of(samples)
    ]


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
