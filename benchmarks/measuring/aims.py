"""Aims: a figure, its limit, and one line that says whether it was kept."""

from collections.abc import Iterable

MISSED = "MISSED"


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
    return MISSED if missed else "kept"


def show(title: str, rows: Iterable[dict]) -> None:
    """Print a line for each aim, with its values and whether all of them are within its limit."""
    aims: dict[str, dict[str, dict]] = {}
    for row in rows:
        aims.setdefault(row["aim"], {})[row["at"]] = row
    columns = list(dict.fromkeys(at for by_column in aims.values() for at in by_column))
    print(f"\n{title:<40} {'aim':>7}" + "".join(f" {at:>14}" for at in columns))
    for name, by_column in aims.items():
        first = next(iter(by_column.values()))
        bound = ("≥" if first["at_least"] else "≤") + f" {first['limit']:.2f}"
        values = "".join(_cell(by_column.get(at)) for at in columns)
        missed = any(row["missed"] for row in by_column.values())
        print(f"  {name:<38} {bound:>7}{values}  {verdict(missed)}")


def _cell(row: dict | None) -> str:
    return " " * 15 if row is None else f" {row['value']:14.3f}"


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
