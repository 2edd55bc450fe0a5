"""The database of the recipes: a file of SQLite, or PostgreSQL, through SQLAlchemy's ORM."""

from __future__ import annotations

import threading
from typing import Any

from flask import current_app
from sqlalchemy import NullPool, create_engine, delete, event, make_url, select
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from .models import Base, Price, first_rows

BUSY_TIMEOUT = 30.0
"""Seconds to wait while somebody else writes to the file of SQLite."""

CONNECTIONS = 32
"""Of each process to PostgreSQL. Whoever waits for a row occupies one."""

TRIES = 5


class RecipeDatabase:
    """An engine, and a session for each request.

    Args:
        url: SQLAlchemy's. Nothing is connected to, and no table made, before it is needed.
    """

    def __init__(self, url: str) -> None:
        is_sqlite = make_url(url).get_backend_name() == "sqlite"
        options: dict[str, Any] = {"pool_size": CONNECTIONS, "max_overflow": 0}
        if is_sqlite:  # to open a file costs little
            options = {"poolclass": NullPool, "connect_args": {"timeout": BUSY_TIMEOUT}}
        self.engine = create_engine(url, **options)
        if is_sqlite:
            event.listen(self.engine, "connect", read_while_others_write)
        # What was committed is told to the client without being read anew.
        self.session = scoped_session(sessionmaker(self.engine, expire_on_commit=False))
        self._lock = threading.Lock()
        self._is_prepared = False

    def prepare(self) -> None:
        """Make the tables and their first rows, if nobody has."""
        with self._lock:
            if self._is_prepared:
                return
            for tries_left in reversed(range(TRIES)):
                try:
                    Base.metadata.create_all(self.engine)
                    self._fill()
                    break
                except DatabaseError:  # another process is doing the same, and was faster
                    if not tries_left:
                        raise
            self._is_prepared = True

    def new_session(self) -> Session:
        """Return a session besides that of the request, to look at what is committed."""
        return Session(self.engine)

    def reset(self) -> None:
        """Begin anew."""
        with self.new_session() as session, session.begin():
            for table in Base.metadata.sorted_tables:
                session.execute(delete(table))
            session.add_all(first_rows())

    def _fill(self) -> None:
        with self.new_session() as session, session.begin():
            if session.scalar(select(Price.product).limit(1)) is None:
                session.add_all(first_rows())


def read_while_others_write(connection: Any, _: Any) -> None:
    """Keep readers of an SQLite file from waiting for its writer."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def recipe_database() -> RecipeDatabase:
    """Return that of the application that answers this request."""
    found: RecipeDatabase = current_app.extensions["example_recipes"]
    return found


def session() -> Session:
    """Return the session of this request; what is not committed is rolled back at its end."""
    return recipe_database().session()
