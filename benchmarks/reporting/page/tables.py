"""Tables of the report."""

from typing import Any


def table(head: list[str], rows: list[list[Any]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def spread(row: dict | None, digits: int = 2) -> str:
    """Return a median and its spread."""
    if row is None:
        return ""
    low, high = (f"{row[name]:.{digits}f}" for name in ("p10", "p90"))
    return f"{row['median']:.{digits}f} ({low} to {high})"
