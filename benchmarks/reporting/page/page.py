"""The page of the report: an introduction, and a section for each part that was measured."""

from collections.abc import Callable
from pathlib import Path

from measuring.machine import conditions, hardware
from reporting.page import scale
from reporting.page.breakdown import breakdown
from reporting.page.modes import modes

TITLE = "# What was measured"
INTRODUCTION = """\
This page, its charts and [`report.json`](report.json) are written by one command:

```sh
uv run --group bench python benchmarks/report.py
```

Times are medians, in microseconds unless another unit is named; ratios compare requests that
were sent in turn, in one process, so that a busy machine slows both. A spread is that of the
same ratio over blocks of 100 requests, from the 10th to the 90th percentile. The requests are
handed to the application as a server would, with nothing of a network before it; Redis and the
databases are on the same machine. [Memory, shards and network](../capacity.md) are measured by a
command of their own."""
BESIDE_PEERS = """\
## Beside its peers

[The comparison](../comparison.md) tells who they are, how each was set up, and what happened in
every case; its results are in [`peers-correctness.json`](peers-correctness.json) and
[`peers-speed.json`](peers-speed.json). In short:

```{include} ../comparison.md
:start-after: "<!-- begin: summary -->"
:end-before: "<!-- end: summary -->"
```

What each adds to its own view without a guard:

```{include} ../comparison.md
:start-after: "<!-- begin: speed -->"
:end-before: "<!-- end: speed -->"
```"""

Section = Callable[[list[dict], Path], list[str]]
SECTIONS: dict[str, Section] = {
    "modes": modes,
    "breakdown": breakdown,
    "service": scale.service,
    "growth": scale.growth,
    "duplicates": scale.duplicates,
    "bodies": scale.bodies,
}


def write(report: dict, directory: Path) -> None:
    """Write the page and the charts of the parts that were measured."""
    parts, last = [TITLE, INTRODUCTION], ""
    for name, section in SECTIONS.items():
        if told := report.get(name):
            parts += section(told["rows"], directory)
            measured = hardware(told["machine"])
            named = f"{measured} " if measured != last else ""  # it is the same for most parts
            parts += [*told["left out"], f"{named}{conditions(told['machine'])}"]
            last = measured
    parts.append(BESIDE_PEERS)
    (directory / "report.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
