"""`flask idempotence init-db`: create the table of a store in a database."""

from __future__ import annotations

import click

from .common import the_sql_store, tool


@tool("init-db")
@click.option("--sql", is_flag=True, help="Only print the statements; the database is not asked.")
def command(*, sql: bool) -> None:
    """Create the table of a store in a database.

    Where it is there already, nothing is changed; where one of that name is there that will not
    do, this says what it lacks. No other table is touched.
    """
    store = the_sql_store()
    if sql:
        click.echo(store.ddl())
        return
    was_missing = store.create_table()
    if lacking := store.facts()[0].missing:
        raise click.ClickException(
            f"There is a table flask_idempotence, and it lacks {', '.join(lacking)}. It is of "
            "another release, or somebody else's: migrate it, or drop it (which forgets all "
            "claims and remembered responses) and run this again."
        )
    click.echo(
        "Created the table flask_idempotence."
        if was_missing
        else "The table flask_idempotence is there, and as it should be."
    )
