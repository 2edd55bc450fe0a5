"""The sections on each mode on each store, and on the aims."""

from pathlib import Path

from reporting.page import charts
from reporting.page.tables import spread, table
from reporting.stores import MEMORY

AIMS = {"by hand": 1.05, "floor": 1.15, "unguarded": 1.35}
"""The most that a guarded request may take, as a ratio to each; `unguarded` is meant in memory,
the others where the store is a server or a file."""

OTHERS = ("unguarded", "by hand", "floor")


def modes(rows: list[dict], directory: Path) -> list[str]:
    """Tell what each mode costs on each store."""
    head = ["mode", "request", "store", *(f"{name}, µs" for name in ("ours", *OTHERS))]
    head += [f"ours to {name}" for name in OTHERS]
    body = [
        [
            *(row[name] for name in ("mode", "what", "store")),
            *(f"{row['times'][name]['median']:.0f}" for name in ("ours", *OTHERS)),
            *(spread(row["ratios"][name]) for name in OTHERS),
        ]
        for row in rows
    ]
    by_hand, unguarded = directory / "modes-by-hand.svg", directory / "modes.svg"
    charts.bars(by_hand, *_bars(rows, "by hand"), "times the view by hand")
    up = "times the view without a guard"
    charts.bars(unguarded, *_bars(rows, "unguarded"), up, logarithmic=True)
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
                is_meant = (store == MEMORY) is (against == "unguarded")
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
