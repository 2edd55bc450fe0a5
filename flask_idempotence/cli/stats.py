"""`flask idempotence stats`: what the store holds."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import click

from ..stores.base import inspectable
from .common import as_json, the_state, tool
from .keyspace import by_endpoint, by_mode, look, names, state_of
from .output import print_json, progress, styled, table

if TYPE_CHECKING:
    from ..extension import State

_COLUMNS = {"live": "live", "ended": "ended", "record": "records", "token": "tokens"}


class Counts:
    """How much there is of each, by mode and endpoint."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[str, str], dict[str, int]] = defaultdict(
            lambda: dict.fromkeys((*_COLUMNS.values(), "bytes"), 0)
        )

    def add(self, mode: str, endpoint: str, state: str, size: int) -> None:
        """Count one entry."""
        counts = self._by_place[mode, endpoint]
        if state in _COLUMNS:
            counts[_COLUMNS[state]] += 1
        counts["bytes"] += size

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each mode and endpoint, in order."""
        return [
            {"mode": mode, "endpoint": endpoint, **counts}
            for (mode, endpoint), counts in sorted(self._by_place.items())
        ]

    def total(self) -> dict[str, int]:
        """Return the sums."""
        everything = self._by_place.values()
        return {
            name: sum(counts[name] for counts in everything)
            for name in (*_COLUMNS.values(), "bytes")
        }


def count(state: State, *, mode: str | None = None, endpoint: str | None = None) -> Counts:
    """Count what a store holds for an application."""
    counts, store = Counts(), inspectable(state.store)
    with progress("Counting", store.count_all()) as bar:
        found = names(store, state.config, bar, mode=mode, endpoint=endpoint)
        for batch in look(store, found):
            for name, entry in batch:
                counts.add(name.mode, name.endpoint, state_of(entry), entry.size)
    return counts


@tool("stats")
@by_mode
@by_endpoint
@as_json
def command(*, mode: str | None, endpoint: str | None, as_json: bool) -> None:
    """Count what is in the store.

    \b
    live     claims of views that run, and of locks whose interval is not over
    ended    claims whose process died, of routes that must not run twice
    records  remembered responses
    tokens   issued and not spent
    bytes    of all values; the server needs some 100 more for each key

    The store is read in batches and goes on working. What changes meanwhile may be counted or not.
    """  # noqa: D301 - click's mark for a block that is not to be wrapped
    counts = count(the_state(), mode=mode, endpoint=endpoint)
    if as_json:
        print_json({"rows": counts.rows(), "total": counts.total()})
        return
    rows = [tuple(row.values()) for row in counts.rows()]
    table(("MODE", "ENDPOINT", "LIVE", "ENDED", "RECORDS", "TOKENS", "BYTES"), rows)
    total = counts.total()
    keys = sum(total.values()) - total["bytes"]
    click.echo(styled(f"{keys} keys, {total['bytes']} bytes in all.", dim=True), err=True)
