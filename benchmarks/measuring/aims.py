"""Aims: a figure, its limit, and one line that says whether it was kept."""

from measuring.pages import table


def aim(name: str, value: float, limit: float, *, at: str = "", at_least: bool = False) -> dict:
    """Return the row of a measured aim.

    Args:
        name: the figure, with its unit unless it is a ratio.
        value: the figure.
        limit: its greatest value, or its least.
        at: the circumstances; a column of the table.
        at_least: whether the limit is the least value.
    """
    missed = value < limit if at_least else value > limit
    bound = {"limit": limit, "at_least": at_least}
    return {"aim": name, "at": at, "value": round(value, 3), **bound, "missed": missed}


def verdict(missed: bool) -> str:
    return "MISSED" if missed else "kept"


def table_of(rows: list[dict]) -> str:
    """Return a line for each aim of some rows, with a column for each circumstance."""
    aims: dict[str, dict[str, dict]] = {}
    for row in rows:
        aims.setdefault(row["aim"], {})[row["at"]] = row
    columns = list(dict.fromkeys(at for cells in aims.values() for at in cells))
    lines = []
    for name, cells in aims.items():
        first = next(iter(cells.values()))
        bound = f"{'≥' if first['at_least'] else '≤'} {first['limit']:.2f}"
        values = [f"{cells[at]['value']:.3f}" if at in cells else "" for at in columns]
        word = verdict(any(row["missed"] for row in cells.values()))
        lines.append([name, bound, *values, word])
    return table(["", "aim", *columns, ""], lines)
