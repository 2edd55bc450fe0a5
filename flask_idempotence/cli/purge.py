"""`flask idempotence purge`: remove many entries at once."""

from __future__ import annotations

import logging
from collections import Counter

import click
from flask.cli import with_appcontext

from ..stores.base import InspectableStore, Outcome, inspectable
from .context import by_endpoint, by_mode, this_state
from .keyspace import Found, scan
from .output import print_aside, print_table

_logger = logging.getLogger("flask_idempotence")


@click.command("purge")
@by_mode
@by_endpoint
@click.option("--all", "everything", is_flag=True, help="All keys under the prefix.")
@click.option("--live", is_flag=True, help="Include live claims.")
@click.option("--yes", is_flag=True, help="Remove the entries. Without it, they are only counted.")
@with_appcontext
def command(
    *, mode: str | None, endpoint: str | None, everything: bool, live: bool, yes: bool
) -> None:
    """Remove all entries of a mode or an endpoint; a dry run by default.

    Without --yes, the entries are only counted. Live claims stay, unless you give --live: their
    views may be running. Keys of other applications are never touched.

    The consequence: a repeat whose response was remembered runs again, and a form whose token is
    gone is refused.
    """
    if not (mode or endpoint or everything):
        raise click.UsageError("Choose the entries: --mode, --endpoint, or --all.")
    state = this_state()
    removed: Counter[tuple[str, str, str]] = Counter()
    spared = changed = 0
    for batch in scan(state, "Removing" if yes else "Counting", mode=mode, endpoint=endpoint):
        doomed = [found for found in batch if live or found.state != "live"]
        gone = _discard(inspectable(state.store), doomed) if yes else doomed
        removed.update((found.name.mode, found.name.endpoint, found.state) for found in gone)
        spared += len(batch) - len(doomed)
        changed += len(doomed) - len(gone)
    rows = [(*place, count) for place, count in sorted(removed.items())]
    print_table(("MODE", "ENDPOINT", "HOLDS", "KEYS"), rows)
    summary = f"{removed.total()} {'removed.' if yes else 'would be removed (--yes does it).'}"
    if spared:
        summary += f" Kept, because they are live: {spared} (--live removes them, too)."
    if changed:
        summary += f" Kept, because they changed in the meantime: {changed}."
    print_aside(summary)
    if yes:
        _logger.info("Purged by hand: mode=%s endpoint=%s", mode, endpoint)


def _discard(store: InspectableStore, doomed: list[Found]) -> list[Found]:
    """Remove entries, but those that have changed since; return the removed ones."""
    outcomes = store.discard([(name.key, entry) for name, entry in doomed])
    pairs = zip(doomed, outcomes, strict=True)
    return [found for found, outcome in pairs if outcome is Outcome.OK]
