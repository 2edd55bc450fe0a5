"""Transactions that hold and await locks in a real database."""

import contextlib
import time

from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from example_app.recipes.sessions import RecipeDatabase
from helpers.servers.processes import until

AWAITED = {
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    "postgresql": "SELECT count(*) FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND datname = current_database()",
}
"""The number of transactions that wait for a lock."""


def new_tables(server):
    url = server.new_database()
    database = RecipeDatabase(url)
    database.prepare()
    database.engine.dispose()
    return url


def code_of(error):
    first = error.orig.args[0]
    return first if isinstance(first, int) else error.orig.sqlstate


@contextlib.contextmanager
def transaction(url, *statements, **options):
    engine = create_engine(url, poolclass=NullPool, **options)
    with contextlib.closing(engine.connect()) as connection:
        for statement in statements:
            connection.execute(text(statement))
        yield connection


def run_in(connection, *statements):
    try:
        for statement in statements:
            connection.execute(text(statement))
        connection.commit()
    except DBAPIError as error:
        connection.rollback()
        return code_of(error)
    return None


def wait_for_waiting(url, count):
    """Wait until so many transactions wait for a lock; SQLite does not tell, and gets a moment."""
    engine = create_engine(url, poolclass=NullPool)
    asked = AWAITED.get(engine.dialect.name)

    def are_waiting():
        time.sleep(0.15)  # InnoDB renews that table once it was not read for a tenth of a second
        with engine.connect() as connection:
            return connection.scalar(text(asked)) == count

    if asked:
        assert until(are_waiting, 20)
    else:
        time.sleep(0.3)
    engine.dispose()
