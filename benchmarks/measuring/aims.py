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
    """Return the word for an aim."""
    return "MISSED" if missed else "kept"


def table_of(report: object) -> str:
    """Return a line for each aim in a report, with a column for each circumstance."""
    aims: dict[str, dict[str, dict]] = {}
    for row in rows_of(report):
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


def rows_of(report: object) -> list[dict]:
    """Return the rows of all aims in a report."""
    if isinstance(report, dict):
        own = [report] if "aim" in report else []
        return own + rows_of(list(report.values()))
    if isinstance(report, list):
        return [row for part in report for row in rows_of(part)]
    return []


def missed_in(report: object) -> int:
    """Return the number of rows in a report that miss their limit."""
    if isinstance(report, dict):
        return report.get("missed", 0) + missed_in(list(report.values()))
    if isinstance(report, list):
        return sum(map(missed_in, report))
    return 0
