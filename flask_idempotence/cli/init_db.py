"""`flask idempotence init-db`: create the table of a store in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from flask.cli import with_appcontext

from .context import this_app

if TYPE_CHECKING:
    from ..stores.sql import SqlStore


def this_sql_store() -> SqlStore:
    """Return the application's store.

    Raises:
        ClickException: it is not in a database.
    """
    store: SqlStore = this_app().extensions["idempotence"].store
    if not hasattr(store, "create_table"):  # SqlStore itself needs an extra
        raise click.ClickException(
            f"This is for a store in a database, and IDEMPOTENCE_STORAGE_URI names another "
            f"({type(store).__name__}): there is nothing to do."
        )
    return store


@click.command("init-db")
@click.option("--sql", is_flag=True, help="Only print the statements, without connecting.")
@with_appcontext
def command(*, sql: bool) -> None:
    """Create the table of a store in a database.

    An existing table is not changed, and no other one is touched. If a table of that name lacks
    columns, they are named, and the exit code is 1.
    """
    store = this_sql_store()
    if sql:
        click.echo(store.ddl())
        return
    was_missing = store.create_table()
    if lacking := store.facts()[0].missing:
        raise click.ClickException(
            f"There is a table flask_idempotence, and it lacks {', '.join(lacking)}. It is of "
            "another release or application: migrate it, or drop it (which loses all claims and "
            "remembered responses) and run this again."
        )
    click.echo(
        "Created the table flask_idempotence."
        if was_missing
        else "The table flask_idempotence is there, and as it should be."
    )
