"""The page of the report: an introduction, and a section for each part that was measured."""

from collections.abc import Callable
from pathlib import Path

from measuring.machine import conditions, hardware
from reporting.sections import modes, service

TITLE = "# Benchmark report"
INTRODUCTION = """\
The cost of every mode on every store, measured. One command writes this page, its charts and
[`report.json`](report.json):

```sh
uv run --group bench python benchmarks/report.py
```

- Times are medians, in microseconds unless another unit is named.
- Ratios compare requests that were sent in turn in one process, so that other load slows both. In
  parentheses: the same ratio over blocks of 100 requests, 10th to 90th percentile.
- Requests go directly to the application, without a network; Redis and the databases are on the
  same machine.

[Overhead](../../overhead.md) has memory, shards and network. [Earlier measurements](earlier.md)
has live keys, simultaneous duplicates, bodies, and each step of a request."""
BESIDE_PEERS = """\
## Compared with other libraries

[The comparison](../../comparison.md) has the outcome, [its report](../peers.md) every case; the
results are in [`peers-correctness.json`](peers-correctness.json) and
[`peers-speed.json`](peers-speed.json)."""

Section = Callable[[list[dict], Path], list[str]]
SECTIONS: dict[str, Section] = {"modes": modes, "service": service}


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
