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
            "Only a store in a database needs this command, and this application has a "
            f"{type(store).__name__}: there is nothing to do."
        )
    return store


@click.command("init-db")
@click.option("--sql", is_flag=True, help="Print the statements, without connecting.")
@with_appcontext
def command(*, sql: bool) -> None:
    """Create the table of a store in a database.

    An existing table is not changed, and no other one is touched. If a table of that name lacks
    columns, the command names them and exits with 1.
    """
    store = this_sql_store()
    if sql:
        click.echo(store.ddl())
        return
    was_missing = store.create_table()
    if lacking := store.facts()[0].missing:
        raise click.ClickException(
            f"The table flask_idempotence lacks {', '.join(lacking)}: it belongs to another "
            "release or application. Migrate it, or drop it (which loses all claims and "
            "remembered responses) and run this command again."
        )
    click.echo(
        "Created the table flask_idempotence."
        if was_missing
        else "The table flask_idempotence exists and is up to date."
    )
