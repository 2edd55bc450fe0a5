"""The page of the report: its tables and its charts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import report_charts as charts
from machine import in_words

TITLE = "# What was measured"
INTRODUCTION = """\
This page, its charts and [`report.json`](report.json) are written by one command:

```sh
uv run --group bench python benchmarks/report.py
```

Times are medians; ratios compare requests that were sent in turn, in one process, so that a
busy machine slows both. A spread is that of the same ratio over blocks of 100 requests, from the
10th to the 90th percentile. The requests are handed to the application as a server would, with
nothing of a network before it; Redis and the databases are on the same machine."""


def write(report: dict, directory: Path) -> None:
    """Write the page and the charts of the parts that were measured."""
    parts = [TITLE, INTRODUCTION]
    for name, section in SECTIONS.items():
        if told := report.get(name):
            parts += [*section(told["rows"], directory), in_words(told["machine"])]
    (directory / "report.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def table(head: list[str], rows: list[list[Any]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def spread(row: dict | None, digits: int = 2) -> str:
    """Return a median with what lies around it."""
    if row is None:
        return ""
    low, high = (f"{row[name]:.{digits}f}" for name in ("p10", "p90"))
    return f"{row['median']:.{digits}f} ({low} to {high})"


def modes(rows: list[dict], directory: Path) -> list[str]:
    """Tell what each mode costs on each store."""
    head = ["mode", "request", "store", "unguarded, µs", "ours, µs"]
    head += ["to unguarded", "to by hand", "to the floor"]
    body = [
        [
            *(row[name] for name in ("mode", "what", "store")),
            *(f"{row['times'][name]['median']:.0f}" for name in ("unguarded", "ours")),
            *(spread(row["ratios"].get(name)) for name in ("unguarded", "by hand", "floor")),
        ]
        for row in rows
    ]
    names = list(dict.fromkeys(f"{row['mode']}: {row['what']}" for row in rows))
    found = {
        (row["store"], f"{row['mode']}: {row['what']}"): row["ratios"]["unguarded"]["median"]
        for row in rows
    }
    stores = dict.fromkeys(row["store"] for row in rows)
    series = {store: [found.get((store, name)) for name in names] for store in stores}
    charts.bars(directory / "modes.svg", names, series, "times the view without a guard")
    return [
        "## Each mode on each store",
        "The *floor* is a view that sends the same commands to Redis and does nothing else; *by "
        "hand* is what a developer would write (see [what it costs](../overhead.md)). The view "
        "reads its JSON and answers; one that does more takes longer, and the guard does not.",
        "![Ratio to the view without a guard, by mode and store](modes.svg)",
        table(head, body),
    ]


def service(rows: list[dict], directory: Path) -> list[str]:
    """Tell throughput and latency of a whole service."""
    if not rows:
        return ["## A whole service", "Not measured: `wrk` is not installed."]
    head = ["view", "guard", "requests a second", "of the unguarded", "p50, ms", "p99, ms"]
    body = [
        [
            row["view"],
            row["guard"],
            f"{row['requests a second']:,}",
            f"{row['of the unguarded']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})",
            row["p50, ms"],
            row["p99, ms"],
        ]
        for row in rows
    ]
    views = list(dict.fromkeys(row["view"] for row in rows))
    guards = dict.fromkeys(row["guard"] for row in rows)
    rates = {(row["guard"], row["view"]): row["requests a second"] for row in rows}
    series = {guard: [rates[guard, view] for view in views] for guard in guards}
    charts.bars(directory / "service.svg", views, series, "requests a second")
    return [
        "## A whole service",
        "Gunicorn with two workers of eight threads, Redis over TCP, `wrk` with sixteen "
        "connections, all on the same two cores. *fast* reads JSON and answers; *database* waits "
        "for 5 ms as well. Rounds in turn; the ratio is that of the same round, with the lowest "
        "and the highest.",
        "![Requests a second, by view and guard](service.svg)",
        table(head, body),
    ]


def growth(rows: list[dict], directory: Path) -> list[str]:
    """Tell how it grows with live keys."""
    names = ("first request", "replay")
    series = {
        f"{store}: {name}": [
            (row["keys"], row[name]["times"]["median"]) for row in rows if row["store"] == store
        ]
        for store in dict.fromkeys(row["store"] for row in rows)
        for name in names
    }
    charts.lines(directory / "growth.svg", series, across="live keys", up="microseconds a request")
    head = ["store", "live keys", *(f"{name}, to unguarded" for name in names), "bytes a key"]
    body = [
        [
            row["store"],
            f"{row['keys']:,}",
            *(spread(row[name]["ratio"]) for name in names),
            row.get("bytes a key", ""),
        ]
        for row in rows
    ]
    return [
        "## With live keys",
        "Remembered answers of 100 bytes fill the store; first requests and replays come on top. "
        "Bytes are those of the whole server, divided by the keys.",
        "![Microseconds a request, by live keys](growth.svg)",
        table(head, body),
    ]


def duplicates(rows: list[dict], directory: Path) -> list[str]:
    """Tell how long simultaneous duplicates take."""
    label = {"/key/slow": "refused with 409", "/key/slow/waiting": "waiting for the answer"}
    series = {
        name: [(row["duplicates"], row["last answer, ms"]) for row in rows if row["path"] == path]
        for path, name in label.items()
    }
    charts.lines(
        directory / "duplicates.svg",
        series,
        across="simultaneous requests with one key",
        up="milliseconds until the last answer",
    )
    head = ["repeats are", "requests at once", "runs of the view", "last answer, ms", "answers"]
    body = [
        [
            label[row["path"]],
            row["duplicates"],
            row["runs"],
            row["last answer, ms"],
            ", ".join(f"{count}x {status}" for status, count in sorted(row["statuses"].items())),
        ]
        for row in rows
    ]
    return [
        "## Simultaneous duplicates",
        "Over HTTP to Gunicorn with two workers of 32 threads; the view takes 50 ms. *Runs* is "
        "the highest number of different answers in a round: more than one would be a fault.",
        "![Milliseconds until the last answer, by simultaneous requests](duplicates.svg)",
        table(head, body),
    ]


def bodies(rows: list[dict], directory: Path) -> list[str]:
    """Tell how it grows with bodies."""
    names = ("first request", "replay")
    series = {
        "no guard": [(row["bytes"] / 1000, row["unguarded"]["median"]) for row in rows],
        **{
            name: [(row["bytes"] / 1000, row[name]["times"]["median"]) for row in rows]
            for name in names
        },
    }
    charts.lines(
        directory / "bodies.svg",
        series,
        across="kB of JSON in the request, and in the answer",
        up="microseconds a request",
        logarithmic=True,
    )
    head = ["bytes", "unguarded, µs", *(f"{name}, to unguarded" for name in names)]
    body = [
        [
            f"{row['bytes']:,}",
            f"{row['unguarded']['median']:.0f}",
            *(spread(row[name]["ratio"]) for name in names),
        ]
        for row in rows
    ]
    return [
        "## Bodies",
        "The key mode on Redis over TCP; request and answer are JSON of the same size.",
        "![Microseconds a request, by size](bodies.svg)",
        table(head, body),
    ]


SECTIONS: dict[str, Callable[[list[dict], Path], list[str]]] = {
    "modes": modes,
    "service": service,
    "growth": growth,
    "duplicates": duplicates,
    "bodies": bodies,
}
