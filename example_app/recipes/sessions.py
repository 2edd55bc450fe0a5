"""The recipes' database through SQLAlchemy's ORM: SQLite, PostgreSQL, MySQL or MariaDB."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from flask import current_app
from sqlalchemy import NullPool, create_engine, delete, event, make_url, select
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from .models import Base, Price, first_rows

BUSY_TIMEOUT = 30.0
"""Seconds to wait for another writer of the SQLite file."""

CONNECTIONS = 32
"""Connections per process. A request that waits for a row occupies one."""

LONGEST_IDLE = 3600
"""Seconds; MySQL closes idle connections after its `wait_timeout`, eight hours by default."""

TRIES = 10
LONGEST_PAUSE = 0.2
"""Seconds between two tries: processes that start together must not collide again and again."""


class RecipeDatabase:
    """An engine, and a session per request.

    Args:
        url: SQLAlchemy's URL. The first request connects, and creates the tables.
    """

    def __init__(self, url: str) -> None:
        is_sqlite = make_url(url).get_backend_name() == "sqlite"
        options: dict[str, Any] = {
            "pool_size": CONNECTIONS,
            "max_overflow": 0,
            "pool_recycle": LONGEST_IDLE,
        }
        if is_sqlite:  # opening a file is cheap
            options = {"poolclass": NullPool, "connect_args": {"timeout": BUSY_TIMEOUT}}
        self.engine = create_engine(url, **options)
        if is_sqlite:
            event.listen(self.engine, "connect", read_while_others_write)
        # The answer reads values after the commit.
        self.session = scoped_session(sessionmaker(self.engine, expire_on_commit=False))
        self._lock = threading.Lock()
        self._is_prepared = False

    def prepare(self) -> None:
        """Create the tables and their initial rows, if they are missing."""
        with self._lock:
            if self._is_prepared:
                return
            for tries_left in reversed(range(TRIES)):
                try:
                    Base.metadata.create_all(self.engine)
                    self._fill()
                    break
                except DatabaseError:  # another process creates them too
                    if not tries_left:
                        raise
                    time.sleep(random.uniform(0, LONGEST_PAUSE))  # noqa: S311 - no secret
            self._is_prepared = True

    def new_session(self) -> Session:
        """Return a session apart from the request's, which reads committed rows only."""
        return Session(self.engine)

    def reset(self) -> None:
        """Replace all rows with the initial ones."""
        with self.new_session() as session, session.begin():
            for table in Base.metadata.sorted_tables:
                session.execute(delete(table))
            session.add_all(first_rows())

    def _fill(self) -> None:
        with self.new_session() as session, session.begin():
            if session.scalar(select(Price.product).limit(1)) is None:
                session.add_all(first_rows())


def read_while_others_write(connection: Any, _: Any) -> None:
    """Let readers of an SQLite file read during a write."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def recipe_database() -> RecipeDatabase:
    """Return the database of the current application."""
    found: RecipeDatabase = current_app.extensions["example_recipes"]
    return found


def session() -> Session:
    """Return the session of this request. The end of the request rolls back uncommitted writes."""
    return recipe_database().session()
