"""A line for each figure: what it was early and late, and whether it has grown."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One figure of a run, early (it has warmed up) and late; `limit` is a share of growth."""

    name: str
    before: float
    after: float
    unit: str = ""
    limit: float | None = None

    @property
    def growth(self) -> float:
        return self.after / self.before - 1 if self.before else float(self.after > 0)

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        return "ok" if self.growth <= self.limit else "FAILED"

    def __str__(self) -> str:
        figures = [f"{figure:.4g} {self.unit}".strip() for figure in (self.before, self.after)]
        grown = f"{100 * self.growth:+.1f} %"
        return f"| {self.name} | {' | '.join(figures)} | {grown} | {self.verdict} |"


def table_of(lines: Sequence[Line], early: str, late: str) -> str:
    return "\n".join(
        [f"| | {early} | {late} | growth | |", "|---|---|---|---|---|", *map(str, lines)]
    )


def missed_in(lines: Sequence[Line]) -> list[str]:
    return [f"FAILED: {line}" for line in lines if line.verdict == "FAILED"]


def lines_of(early: dict, end: dict, limit: float) -> list[Line]:
    """Return the lines of some figures. The keeper comes and goes: a thread may be doubled."""
    return [
        Line(name, early[name], end[name], limit=1.0 if name == "threads" else limit)
        for name in early
    ]
