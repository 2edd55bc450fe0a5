"""Transactions that hold and await locks in a real database."""

import contextlib
import time

from sqlalchemy import NullPool, create_engine, text

from helpers.servers.processes import until

AWAITED = {
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    "postgresql": "SELECT count(*) FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND datname = current_database()",
}
"""The number of transactions that wait for a lock."""


@contextlib.contextmanager
def transaction(url, *statements):
    """Run statements in a transaction that the caller ends, else it is rolled back."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))
        yield connection
        connection.rollback()
    engine.dispose()


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
