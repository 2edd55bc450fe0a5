"""`flask idempotence prune`: remove the expired rows of a store in a database."""

from __future__ import annotations

import time

import click

from ..stores.sql_extra import BATCH, REST
from .common import the_sql_store, tool
from .output import progress


@tool("prune")
@click.option(
    "--batch",
    default=BATCH,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Rows that one statement removes.",
)
@click.option(
    "--pause",
    default=REST,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds between two statements.",
)
def command(*, batch: int, pause: float) -> None:
    """Remove the expired rows of a store in a database, in small batches.

    Expired rows mean nothing any more, and only take up room. The store removes some by itself as
    it is written to; this is for a timer, or for what a burst has left behind. A store on Redis
    forgets by itself.
    """
    store, removed = the_sql_store(), 0
    with progress("Removing", store.facts()[0].expired) as bar:
        while True:
            count = store.prune(batch)
            removed += count
            bar.update(count)
            if count < batch:
                break
            time.sleep(pause)
    click.echo(f"{removed} removed.", err=True)
