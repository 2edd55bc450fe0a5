"""The sections on a whole service, live keys, duplicates and bodies."""

from pathlib import Path

from reporting.page import charts
from reporting.page.tables import spread, table


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
            spread(row["of the unguarded"]),
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
        "connections, all on the same two cores. The view *database* reads JSON, waits for 5 ms "
        "and answers; *plain* has no guard; *floor* sends the lock's command through redis-py and "
        "nothing else. They take turns in rounds. A ratio is the median over the rounds, in "
        "parentheses the 10th to 90th percentile, to the unguarded view of the same round.",
        "[The aims](../aims.md#a-whole-service) has a view that does nothing but read JSON, "
        "from a run of its own: `benchmarks/service/throughput.py`, which needs an idle machine.",
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
    across, up = "live keys", "microseconds a request"
    file = directory / "growth.svg"
    charts.lines(file, series, across=across, up=up, logarithmic=True, in_pairs=True)
    head = ["store", "live keys"]
    for name in names:
        head += [f"{name}, µs", "to unguarded"]
    body = []
    for row in rows:
        cells = [row["store"], f"{row['keys']:,}"]
        for name in names:
            cells += [f"{row[name]['times']['median']:.0f}", spread(row[name]["ratio"])]
        body.append([*cells, row.get("bytes a key", "")])
    return [
        "## With live keys",
        "The store is filled with remembered answers of 100 bytes, under keys like those of the "
        "requests; then first requests and replays with keys are measured. Databases are filled "
        "in bulk and get a quarter of the requests. Bytes are those of the whole server, or "
        "of the table with its indexes, divided by the keys.",
        "![Microseconds a request, by live keys](growth.svg)",
        table([*head, "bytes a key"], body),
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
        "the highest number of different answers in a round: more than one would be a fault. A "
        "duplicate that starts after the first request has ended gets the answer in both cases.",
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
        "Requests with a key on Redis over TCP; request and answer are JSON of the same size.",
        "![Microseconds a request, by size](bodies.svg)",
        table(head, body),
    ]
