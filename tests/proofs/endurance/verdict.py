"""What a long run must show: what a figure was in an early part, and what it is in the end."""

import statistics
from dataclasses import dataclass

PARTS = (4 / 20, 6 / 20), (17 / 20, 1.0)
"""Of a run, which are compared: of twenty minutes, two around the fifth and the last three."""


@dataclass(frozen=True)
class Limits:
    """Shares by which figures may grow; `times` also of operations that may begin late."""

    processes: float = 0.03
    store: float = 0.03
    times: float = 0.03

    def of(self, name):
        if name.startswith(("worker", "master")):
            return self.processes
        return self.times if name.startswith(("CPU", "guarded")) else self.store


def compare(early, end, limit_of):
    lines, missed = [], []
    for name, before in early.items():
        after = end[name]
        growth = after / before - 1 if before else float(after > 0)
        lines.append(f"{name}: {before:.4g} → {after:.4g}, {100 * growth:+.1f} %")
        if growth > limit_of(name):
            missed.append(lines[-1])
    return lines, missed


def grown(early, end, limit):
    """Compare figures. The keeper comes and goes: a thread may be doubled."""
    return compare(early, end, lambda name: 1.0 if name == "threads" else limit)


def report_of(samples, limits):
    lines, faults = compare(*figures_of(samples), limits.of)
    faults += [f"{count} x {problem}" for problem, count in samples.problems.items()]
    if samples.late > limits.times:
        faults.append(f"{100 * samples.late:.1f} % of the operations began late")
    return lines, faults


def figures_of(samples):
    parts = {name: parts_of(samples, values) for name, values in samples.series.items()}
    workers, clients = (
        [part[-1] - part[0] for part in parts.pop(f"CPU of the {who}")]
        for who in ("workers", "clients")
    )
    for place in (0, 1):
        # The clients' work is always the same: it measures the machine.
        figures = {"CPU a request, workers ÷ clients": workers[place] / clients[place]}
        for name, part in parts.items():
            # Keys come and go in rounds, as rows are pruned.
            is_steady = name != "keys" and not name.endswith("MiB")
            average = statistics.median if is_steady else statistics.fmean
            figures[name] = average(part[place])
        yield figures


def parts_of(samples, values):
    length = samples.ended - samples.began
    return [
        [value for moment, value in values if begin <= (moment - samples.began) / length <= end]
        for begin, end in PARTS
    ]
