"""What a long run must show: a line for each figure, those of an early part beside the end's."""

import statistics
from dataclasses import dataclass

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
    limit: float

    @property
    def growth(self):
        return self.after / self.before - 1 if self.before else float(self.after > 0)

    @property
    def verdict(self):
        return "ok" if self.growth <= self.limit else "FAILED"

    def __str__(self):
        figures = f"{self.before:.4g} | {self.after:.4g} | {100 * self.growth:+.1f} %"
        return f"| {self.name} | {figures} | {self.verdict} |"


def told(lines):
    """Return the table of some lines, and those that missed their limit."""
    head = ["| | early | end | growth | |", "|---|---|---|---|---|"]
    missed = [f"FAILED: {line}" for line in lines if line.verdict == "FAILED"]
    return "\n".join([*head, *map(str, lines)]), missed


def grown(early, end, limit):
    """Compare figures. The keeper comes and goes: a thread may be doubled."""
    limits = {name: 1.0 if name == "threads" else limit for name in early}
    return told([Line(name, early[name], end[name], limits[name]) for name in early])


@dataclass(frozen=True)
class Limits:
    """Shares by which figures may grow; `times` also of operations that may begin late."""

    processes: float = 0.03
    store: float = 0.03
    times: float = 0.03


def report_of(samples, limits):
    table, faults = told([*lines_of(samples, limits)])
    faults += [f"FAILED: {count} x {problem}" for problem, count in samples.problems.items()]
    if samples.late > limits.times:
        faults.append(f"FAILED: {100 * samples.late:.1f} % of the operations began late")
    return table, faults


def lines_of(samples, limits):
    parts = {name: parts_of(samples, values) for name, values in samples.series.items()}
    # The clients' work is always the same: it measures the machine.
    workers, clients = (
        [part[-1] - part[0] for part in parts.pop(f"CPU of the {who}")]
        for who in ("workers", "clients")
    )
    shares = (ours / theirs for ours, theirs in zip(workers, clients, strict=True))
    yield Line("CPU a request, workers ÷ clients", *shares, limits.times)
    for name, (early, end) in parts.items():
        limit = limits.processes if name.startswith(("worker", "master")) else limits.store
        if name.startswith("guarded"):
            limit = limits.times
        # Keys come and go in rounds, as rows are pruned.
        is_steady = name != "keys" and not name.endswith("MiB")
        average = statistics.median if is_steady else statistics.fmean
        yield Line(name, average(early), average(end), limit)


def compared(samples):
    """Return the two parts of a run that are compared, as shares of it."""
    early = max(EARLY, IN_BALANCE * samples.ttl / (samples.ended - samples.began))
    return (early, early + EARLY_LASTS), END


def parts_of(samples, values):
    length = samples.ended - samples.began
    return [
        [
            value
            for moment, value in values
            if begin * length <= moment - samples.began <= end * length
        ]
        for begin, end in compared(samples)
    ]
