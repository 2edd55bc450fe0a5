"""`flask idempotence purge`: remove much at once."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

import click

from ..stores.base import Outcome, inspectable
from .common import the_state, tool
from .keyspace import Found, by_endpoint, by_mode, look, names, state_of
from .output import progress, table

if TYPE_CHECKING:
    from ..extension import State

_logger = logging.getLogger("flask_idempotence")

Place = tuple[str, str, str]


class Purge:
    """Goes over an application's keys, and removes or counts those that are meant.

    Attributes:
        meant: how many of them there were, by mode, endpoint and what they hold.
        spared: live claims.
        changed: what was something else by the time it was to be removed.
    """

    def __init__(self, state: State, *, live: bool, for_real: bool) -> None:
        self._store, self._config = inspectable(state.store), state.config
        self._live = live
        self._for_real = for_real
        self.meant: Counter[Place] = Counter()
        self.spared = self.changed = 0

    def run(self, mode: str | None, endpoint: str | None) -> None:
        """Go over them, in batches."""
        label = "Removing" if self._for_real else "Counting"
        with progress(label, self._store.count_all()) as bar:
            found = names(self._store, self._config, bar, mode=mode, endpoint=endpoint)
            for batch in look(self._store, found):
                self._purge(batch)

    def _purge(self, batch: list[Found]) -> None:
        doomed = [each for each in batch if self._live or state_of(each[1]) != "live"]
        self.spared += len(batch) - len(doomed)
        outcomes = [Outcome.OK] * len(doomed)
        if self._for_real:
            outcomes = self._store.discard([(name.key, entry) for name, entry in doomed])
        for (name, entry), outcome in zip(doomed, outcomes, strict=True):
            if outcome is Outcome.OK:
                self.meant[name.mode, name.endpoint, state_of(entry)] += 1
            else:
                self.changed += 1


@tool("purge")
@by_mode
@by_endpoint
@click.option("--all", "everything", is_flag=True, help="All that is under the prefix.")
@click.option("--live", is_flag=True, help="Also live claims.")
@click.option("--yes", is_flag=True, help="Remove it; without this, nothing is removed.")
def command(
    *, mode: str | None, endpoint: str | None, everything: bool, live: bool, yes: bool
) -> None:
    """Remove much at once; a dry run by default.

    What is removed is all that the store holds for a mode or an endpoint.

    Without --yes this only tells what would be removed. Live claims are left, unless --live is
    given: their views may be running. Other applications' keys are never touched.

    What it means: a request whose response was remembered runs again when it is repeated, and a
    form whose token is gone is refused.
    """
    if not (mode or endpoint or everything):
        raise click.UsageError("Say what: --mode, --endpoint, or --all.")
    purge = Purge(the_state(), live=live, for_real=yes)
    purge.run(mode, endpoint)
    rows = [(*place, count) for place, count in sorted(purge.meant.items())]
    table(("MODE", "ENDPOINT", "HOLDS", "KEYS"), rows)
    click.echo(_summary(purge, for_real=yes), err=True)
    if yes:
        _logger.info("Purged by hand: mode=%s endpoint=%s", mode, endpoint)


def _summary(purge: Purge, *, for_real: bool) -> str:
    count = purge.meant.total()
    parts = [f"{count} removed." if for_real else f"{count} would be removed (--yes does it)."]
    if purge.spared:
        parts.append(f"Left, because they are live: {purge.spared} (--live takes them too).")
    if purge.changed:
        parts.append(f"Left, because they have changed meanwhile: {purge.changed}.")
    return " ".join(parts)
