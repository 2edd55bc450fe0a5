"""`flask idempotence purge`: remove many entries at once."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

import click
from flask.cli import with_appcontext

from ..stores.base import Outcome, Store
from .context import by_endpoint, by_mode, this_state
from .keyspace import Found, scan
from .output import print_aside, print_table

_logger = logging.getLogger("flask_idempotence")


@dataclass(slots=True)
class Purge:
    """Removes entries, or counts those that it would remove, by mode, endpoint and state.

    It counts the live claims that it spares, and entries that have changed since they were read.
    """

    store: Store
    spares_live: bool
    dry_run: bool
    removed: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    live: int = 0
    changed: int = 0

    def purge(self, batch: list[Found]) -> None:
        """Remove the entries of a batch."""
        doomed = [found for found in batch if found.state != "live" or not self.spares_live]
        self.live += len(batch) - len(doomed)
        outcomes = [Outcome.OK] * len(doomed)
        if not self.dry_run:
            outcomes = self.store.discard([(name.key, entry) for name, entry in doomed])
        for found, outcome in zip(doomed, outcomes, strict=True):
            if outcome is Outcome.OK:
                self.removed[found.name.mode, found.name.endpoint, found.state] += 1
            else:
                self.changed += 1

    def summary(self) -> str:
        """Return the sums, in a sentence each."""
        count = self.removed.total()
        text = (
            f"{count} would be removed (--yes does it)." if self.dry_run else f"{count} removed."
        )
        if self.live:
            text += f" Left, because they are live: {self.live} (--live takes them too)."
        if self.changed:
            text += f" Left, because they have changed meanwhile: {self.changed}."
        return text


@click.command("purge")
@by_mode
@by_endpoint
@click.option("--all", "everything", is_flag=True, help="All keys under the prefix.")
@click.option("--live", is_flag=True, help="Also live claims.")
@click.option("--yes", is_flag=True, help="Remove them; without this, nothing is removed.")
@with_appcontext
def command(
    *, mode: str | None, endpoint: str | None, everything: bool, live: bool, yes: bool
) -> None:
    """Remove many entries at once; a dry run by default.

    It removes all entries of a mode or an endpoint.

    Without --yes they are only counted. Live claims are left, unless --live is given: their views
    may be running. Other applications' keys are never touched.

    The consequence: a request whose response was remembered runs again when it is repeated, and a
    form whose token is gone is refused.
    """
    if not (mode or endpoint or everything):
        raise click.UsageError("Choose the entries: --mode, --endpoint, or --all.")
    state = this_state()
    purge = Purge(state.store, spares_live=not live, dry_run=not yes)
    for batch in scan(state, "Removing" if yes else "Counting", mode=mode, endpoint=endpoint):
        purge.purge(batch)
    rows = [(*place, count) for place, count in sorted(purge.removed.items())]
    print_table(("MODE", "ENDPOINT", "HOLDS", "KEYS"), rows)
    print_aside(purge.summary())
    if yes:
        _logger.info("Purged by hand: mode=%s endpoint=%s", mode, endpoint)
