"""The section on where the time goes."""

from pathlib import Path

from reporting.breakdown import BARE, LINK, REDIS_PY, REST
from reporting.page import charts
from reporting.page.tables import spread, table
from reporting.stores import REDIS


def breakdown(rows: list[dict], directory: Path) -> list[str]:
    """Tell what a round trip takes, and what the steps of a request take."""
    trips = [row for row in rows if "transport" in row]
    requests = [row for row in rows if "steps" in row]
    names = list(dict.fromkeys(step for row in requests for step in row["steps"]))
    names.append(names.pop(names.index(REST)))
    steps = {row["request"]: [row["steps"].get(name) for name in names] for row in requests}
    charts.bars(directory / "breakdown.svg", names, steps, "microseconds of a request")
    return [
        "## Where the time goes",
        _in_words(trips),
        _trips(trips),
        "Three requests to Redis over TCP take turns: unguarded, guarded, and guarded with a "
        "stopwatch. The *added* time is the difference of the first two. A step excludes the "
        "steps inside it, the view, and the parsing of the body, which the view would do. "
        "*Everything else* is the added time outside all steps: Flask's hooks after a view, and "
        "code that is slower because other code ran before it. The stopwatch takes "
        f"{_stopwatch(requests)}, mostly within the steps.",
        "![Microseconds of each step](breakdown.svg)",
        _steps(requests, names),
    ]


def _in_words(trips: list[dict]) -> str:
    (claim,) = (row for row in trips if row["transport"] == REDIS and row["command"] == "a claim")
    bare, ours, theirs = (claim["times"][way]["median"] for way in (BARE, LINK, REDIS_PY))
    return (
        f"Mostly into round trips. A claim over TCP takes {theirs:.0f} µs through redis-py, "
        f"{bare:.0f} through a bare socket, and {ours:.0f} through the extension, which uses "
        "connections of redis-py but sends, reads and keeps the deadline itself. The views by "
        "hand and the floor use redis-py."
    )


def _stopwatch(requests: list[dict]) -> str:
    taken = [row["stopwatch"] for row in requests]
    return f"{min(taken):.0f} to {max(taken):.0f} µs"


def _trips(trips: list[dict]) -> str:
    head = ["socket", "command", *(f"{way}, µs" for way in (BARE, LINK, REDIS_PY))]
    body = [
        [
            row["transport"],
            row["command"],
            *(spread(row["times"][way], 0) for way in (BARE, LINK, REDIS_PY)),
        ]
        for row in trips
    ]
    return table(
        [*head, "redis-py to bare", "our connection to bare"],
        [
            [*cells, *(_against_bare(row, way) for way in (REDIS_PY, LINK))]
            for cells, row in zip(body, trips, strict=True)
        ],
    )


def _against_bare(row: dict, way: str) -> str:
    return f"{row['times'][way]['median'] / row['times'][BARE]['median']:.2f}"


def _steps(requests: list[dict], names: list[str]) -> str:
    head = ["step", *(f"{row['request']}, µs (share of the added time)" for row in requests)]
    body = [["the view without a guard", *(f"{row['unguarded']:.0f}" for row in requests)]]
    body += [[name, *(_share(row, row["steps"].get(name)) for row in requests)] for name in names]
    body.append(["**added in all**", *(f"{row['added']:.0f}" for row in requests)])
    return table(head, body)


def _share(row: dict, step: float | None) -> str:
    return "" if step is None else f"{step:.1f} ({step / row['added']:.0%})"
