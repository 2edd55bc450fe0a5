"""What a long run must show: a line for each figure, those of an early part beside the end's."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .lines import Line, missed_in, table_of
from .processes import MEBIBYTE
from .soak import Samples

EARLY, EARLY_LASTS = 4 / 20, 2 / 20
END = (17 / 20, 1.0)
"""Parts of a run that are compared: of twenty minutes, two around the fifth and the last three."""

IN_BALANCE = 1.25
"""Lifetimes of a record after which as many expire as are made; the store removes some late."""


def shortest_run(ttl: float) -> float:
    """Return how many seconds a run must last, to be in balance early enough."""
    return IN_BALANCE * ttl / (END[0] - EARLY_LASTS)


@dataclass(frozen=True)
class Limits:
    """Shares by which figures may grow; `times` also of operations that may begin late."""

    processes: float = 0.03
    store: float = 0.03
    times: float = 0.03


def lines_of(samples: Samples, limits: Limits) -> list[Line]:
    lines = [*_of_series(samples, limits)]
    ratios = [_median(part) for part in _parts(samples, samples.ratios)]
    lines.append(Line("guarded ÷ unguarded, median", *ratios, limit=limits.times))
    # The clients' work is always the same: it measures the machine.
    cpu = [_gained(samples, f"CPU of the {who}") for who in ("workers", "clients")]
    requests = _gained(samples, "requests")
    lines.append(
        Line(
            "CPU a request, workers ÷ clients",
            *(ours / theirs for ours, theirs in zip(*cpu, strict=True)),
            limit=limits.times,
        )
    )
    used = [1000 * each / count for each, count in zip(cpu[0], requests, strict=True)]
    lines.append(Line("CPU a request", *used, "ms"))
    for kind, values in sorted(samples.timing.items()):
        medians = [1000 * _median(part) for part in _parts(samples, values)]
        lines.append(Line(f"{kind}, median", *medians, "ms"))
    return lines


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


def _gained(samples: Samples, name: str) -> list[float]:
    gained = []
    for edges in parts_of(samples):
        (began, first), (ended, last) = (_sample_at(samples, name, edge) for edge in edges)
        gained.append((last - first) / (ended - began))
    return gained


def _sample_at(samples: Samples, name: str, part: float) -> tuple[float, float]:
    moment = samples.began + part * (samples.ended - samples.began)
    return min(samples.series[name], key=lambda sample: abs(sample[0] - moment))


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def faults_of(samples: Samples, limits: Limits) -> list[str]:
    faults = [f"{count} x {problem}" for problem, count in samples.problems.items()]
    if samples.late > limits.times:
        faults.append(f"{100 * samples.late:.1f} % of the operations began late")
    return faults


def report_of(samples: Samples, limits: Limits) -> tuple[str, list[str]]:
    lines = lines_of(samples, limits)
    faults = [f"FAILED: {fault}" for fault in faults_of(samples, limits)]
    return table_of(lines, "early", "end"), missed_in(lines) + faults
