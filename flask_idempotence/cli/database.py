"""`flask idempotence init-db` and `prune`: create and tidy the table of a store in a database."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
from flask.cli import with_appcontext

from .context import this_app
from .output import echo, print_aside, progress

if TYPE_CHECKING:
    from ..stores.sql import SqlStore


def _this_sql_store() -> SqlStore:
    """Return the application's store.

    Raises:
        ClickException: it is not in a database.
    """
    store: SqlStore = this_app().extensions["idempotence"].store
    if not hasattr(store, "create_table"):  # SqlStore itself needs an extra
        raise click.ClickException(
            "Only a store in a database needs this command, and this application has a "
            f"{type(store).__name__}: there is nothing to do."
        )
    return store


@click.command("init-db")
@click.option("--sql", is_flag=True, help="Print the statements, without connecting.")
@with_appcontext
def init_db(*, sql: bool) -> None:
    """Create the table of a store in a database.

    An existing table is not changed, and no other one is touched. If a table of that name lacks
    columns, the command names them and exits with 1.
    """
    store = _this_sql_store()
    if sql:
        echo(store.ddl())
        return
    was_missing = store.create_table()
    if lacking := store.facts()[0].missing:
        raise click.ClickException(
            f"The table flask_idempotence lacks {', '.join(lacking)}: it belongs to another "
            "release or application. Migrate it, or drop it (which loses all claims and "
            "remembered responses) and run this command again."
        )
    if was_missing:
        echo("Created the table flask_idempotence.")
    else:
        echo("The table flask_idempotence exists and is up to date.")


@click.command("prune")
@click.option(
    "--batch",
    default=100,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Rows per statement.",
)
@click.option(
    "--pause",
    default=0.02,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds between two statements.",
)
@with_appcontext
def prune(*, batch: int, pause: float) -> None:
    """Remove the expired rows of a store in a database.

    Expired rows only take up space, and each write to the store removes some. Run this command
    from a timer, or after a burst; it works in small batches. Redis needs no pruning.
    """
    store, removed = _this_sql_store(), 0
    with progress("Removing", store.facts()[0].expired) as advance:
        while True:
            count = store.prune(batch)
            removed += count
            advance(count)
            if count < batch:
                break
            time.sleep(pause)
    print_aside(f"{removed} removed.")
