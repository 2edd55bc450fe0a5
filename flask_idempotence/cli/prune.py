"""`flask idempotence prune`: remove the expired rows of a store in a database."""

from __future__ import annotations

import time

import click
from flask.cli import with_appcontext

from ..stores.pruning import BATCH, REST
from .init_db import this_sql_store
from .output import print_aside, progress


@click.command("prune")
@click.option(
    "--batch",
    default=BATCH,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Rows per statement.",
)
@click.option(
    "--pause",
    default=REST,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds between two statements.",
)
@with_appcontext
def command(*, batch: int, pause: float) -> None:
    """Remove the expired rows of a store in a database.

    Expired rows only take up space, and each write to the store removes some. Run this command
    from a timer, or after a burst; it works in small batches. Redis needs no pruning.
    """
    store, removed = this_sql_store(), 0
    with progress("Removing", store.facts()[0].expired) as advance:
        while True:
            count = store.prune(batch)
            removed += count
            advance(count)
            if count < batch:
                break
            time.sleep(pause)
    print_aside(f"{removed} removed.")
