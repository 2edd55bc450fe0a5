"""The sections of the report."""

from pathlib import Path

from measuring.pages import table
from measuring.stores import MEMORY, REDIS
from modes.comparison import BY_HAND, FIRST, FLOOR, OTHERS, UNGUARDED
from reporting import charts

AIMS = {BY_HAND: 1.05, FLOOR: 1.15, UNGUARDED: 1.35}
"""The most that a guarded request may take, as a ratio to each; `unguarded` is meant in memory,
the others where the store is a server or a file."""


def modes(rows: list[dict], directory: Path) -> list[str]:
    """Tell what each mode costs on each store."""
    head = ["mode", "request", "store", *(f"{name}, µs" for name in ("ours", *OTHERS))]
    head += [f"ours to {name}" for name in OTHERS]
    body = [
        [
            *(row[name] for name in ("mode", "what", "store")),
            *(f"{row['times'][name]['median']:.0f}" for name in ("ours", *OTHERS)),
            *(_spread(row["ratios"][name]) for name in OTHERS),
        ]
        for row in rows
    ]
    by_hand, unguarded = directory / "modes-by-hand.svg", directory / "modes.svg"
    charts.bars(by_hand, *_bars(rows, BY_HAND), "times the view by hand")
    up = "times the view without a guard"
    charts.bars(unguarded, *_bars(rows, UNGUARDED), up, logarithmic=True)
    return [
        "## Each mode on each store",
        "- *Ours*: the guarded view. It reads its JSON and answers; a slower view does not make "
        "the guard slower.\n"
        "- *Unguarded*: the same view without a guard.\n"
        "- *By hand*: the guard that a developer might write with the same store. It reads the "
        "body, hashes it with the identity, queries the store, and for a key keeps the answer.\n"
        "- *Floor*: a view that sends the same operations with random keys and does nothing "
        "else; for a replay or a refusal it sends one and has its answer ready.",
        "By hand and floor send the extension's scripts through redis-py on Redis, execute plain "
        "statements through SQLAlchemy in a database, each with its own commit, and use a dict "
        "behind a lock in memory. In a database, a repeat by hand begins with an INSERT, for "
        "which PostgreSQL locks the row and flushes. Databases have their default settings, flush "
        "to the disk, and get a quarter of the requests.",
        "![Ratio to the view by hand, by mode and store](modes-by-hand.svg)",
        "![Ratio to the view without a guard, by mode and store](modes.svg)",
        table(head, body),
        *_aims(rows),
        *_where_the_time_goes(rows),
    ]


def _bars(rows: list[dict], against: str) -> tuple[list[str], dict[str, list[float | None]]]:
    names = list(dict.fromkeys(_name(row) for row in rows))
    found = {(row["store"], _name(row)): row["ratios"][against]["median"] for row in rows}
    stores = dict.fromkeys(row["store"] for row in rows)
    return names, {store: [found.get((store, name)) for name in names] for store in stores}


def _aims(rows: list[dict]) -> list[str]:
    rows = [row for row in rows if "refused" not in row["what"]]
    stores = list(dict.fromkeys(row["store"] for row in rows))
    found = {(_name(row), row["store"]): row["ratios"] for row in rows}
    body, kept, counted = [], 0, 0
    for against, aim in AIMS.items():
        for name in dict.fromkeys(_name(row) for row in rows):
            cells = []
            for store in stores:
                is_meant = (store == MEMORY) is (against == UNGUARDED)
                median = found[name, store][against]["median"]
                counted += is_meant
                kept += is_meant and median <= aim
                cells.append(_verdict(median, aim) if is_meant else "")
            body.append([f"{aim:.2f} of {against}", name, *cells])
    return [
        "### The aims",
        f"This run keeps {kept} of {counted} aims and misses {counted - kept}. With a server or a "
        "file, the aim is at most 1.05 of the view by hand and 1.15 of the floor; in memory, 1.35 "
        "of the unguarded view. The aims concern first requests and replays; refusals are "
        "in the table above.",
        table(["aim", "request", *stores], body),
    ]


def _verdict(median: float, aim: float) -> str:
    return f"{median:.3f} kept" if median <= aim else f"{median:.3f} **missed**"


def _name(row: dict) -> str:
    return f"{row['mode']}: {row['what']}"


def _where_the_time_goes(rows: list[dict]) -> list[str]:
    body = []
    for row in rows:
        if row["store"] == REDIS:
            ours, bare, floor = (row["times"][of]["median"] for of in ("ours", UNGUARDED, FLOOR))
            added, commands = ours - bare, floor - bare
            cells = [f"{commands:.0f}", f"{added - commands:.0f}", f"{commands / added:.0%}"]
            runs = row["what"] == FIRST
            body.append([_name(row), f"{added:.0f}", *(cells if runs else [""] * len(cells))])
    return [
        "## Where the time goes",
        "Mostly into the store's commands. On Redis over TCP, *added* is the time beyond the view "
        "without a guard, and *commands* what the floor adds: the same ones, sent by redis-py. A "
        "floor that does not run the view has no such share.",
        table(["request", "added, µs", "commands, µs", "the rest, µs", "share of commands"], body),
    ]


def service(rows: list[dict], directory: Path) -> list[str]:
    """Tell throughput and latency of a whole service."""
    if not rows:
        return ["## A whole service", "Not measured: `wrk` is not installed."]
    rate, p50, p99 = "requests a second", "p50, ms", "p99, ms"
    body = []
    for row in rows:
        share = _spread(row["of the unguarded"])
        cells = [f"{row[rate]:,}", share, str(row[p50]), str(row[p99])]
        body.append([row["view"], row["guard"], *cells])
    views = list(dict.fromkeys(row["view"] for row in rows))
    rates = {(row["guard"], row["view"]): row[rate] for row in rows}
    guards = dict.fromkeys(row["guard"] for row in rows)
    series = {guard: [rates[guard, view] for view in views] for guard in guards}
    charts.bars(directory / "service.svg", views, series, rate)
    return [
        "## A whole service",
        "Gunicorn with two workers of eight threads, Redis over TCP, `wrk` with sixteen "
        "connections, all on the same two cores. The view *database* reads JSON, waits for 5 ms "
        "and answers; *plain* has no guard; *floor* sends the lock's command through redis-py and "
        "nothing else. They take turns in rounds. A ratio is the median over the rounds, in "
        "parentheses the 10th to 90th percentile, to the unguarded view of the same round.",
        "[The aims](../aims.md#a-whole-service) has a view that does nothing but read JSON, "
        "from a run of its own: `benchmarks/service.py`, which needs an idle machine.",
        "![Requests a second, by view and guard](service.svg)",
        table(["view", "guard", rate, "of the unguarded", p50, p99], body),
    ]


def _spread(row: dict) -> str:
    return f"{row['median']:.2f} ({row['p10']:.2f} to {row['p90']:.2f})"
