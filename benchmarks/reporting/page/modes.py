"""What the page tells of each mode on each store, and of the aims."""

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
    charts.bars(by_hand, *_bars(rows, "by hand"), "times what is written by hand")
    up = "times the view without a guard"
    charts.bars(unguarded, *_bars(rows, "unguarded"), up, logarithmic=True)
    return [
        "## Each mode on each store",
        "*By hand* is what a developer would write with the same store: read the body, hash it "
        "with the identity, ask the store, and for a key keep the answer. The *floor* is a view "
        "that asks the same of the store with random keys, and does nothing else; for a replay "
        "or a refusal it asks once and has its answer ready. On Redis both send the extension's "
        "scripts through redis-py; in a database they execute plain statements through "
        "SQLAlchemy, each committed by itself; in memory they use a dict behind a lock. What is "
        "refused by hand in a database has been tried as an INSERT first, for which PostgreSQL "
        "locks the row and flushes that. Databases flush to the disk, as they come, "
        "and get a quarter of the requests. The view "
        "reads its JSON and answers; one that does more takes longer, and the guard does not.",
        "![Ratio to what is written by hand, by mode and store](modes-by-hand.svg)",
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
        "At most 1.05 of what is written by hand and 1.15 of the floor, where the store is a "
        "server or a file; at most 1.35 of the view without a guard, in memory. They were set for "
        "first requests and replays; what a refusal costs stands above. Of "
        f"{counted}, {kept} are kept in this run and {counted - kept} missed.",
        table(["aim", "request", *stores], body),
    ]


def _verdict(median: float, aim: float) -> str:
    return f"{median:.3f} kept" if median <= aim else f"{median:.3f} **missed**"


def _name(row: dict) -> str:
    return f"{row['mode']}: {row['what']}"
