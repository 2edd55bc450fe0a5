"""Connections that execute statements: the store's own, and those of an application."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.engine.interfaces import DBAPIConnection

from ..process import has_input

Values = Mapping[str, object]
Row = Sequence[Any]
Result = Any  # a driver's cursor, or SQLAlchemy's result: `rowcount` and `lastrowid`


def socket_of(driver: DBAPIConnection) -> int | None:
    """Return the file number of a driver's connection; None for a database without a server."""
    # psycopg, psycopg2 and mysqlclient show it; PyMySQL and pg8000 hide it.
    hidden = (getattr(driver, name, None) for name in ("_usock", "_sock"))
    for holder in (driver, *hidden):
        if (fileno := getattr(holder, "fileno", None)) is not None:
            return int(fileno())
    return None


class StoreConnection:
    """A connection of the store's own, which commits every statement on its own.

    Attributes:
        sqlalchemy: the connection of SQLAlchemy, which executes the statements.
        driver: that of the driver.
        info: it lasts as long as the driver's connection.
        file_number: a number of its own for the socket; None for a database without a server.
            The driver's could be another socket's as soon as the driver has closed it.
        deadline: of the current operation, by the monotonic clock.
        idle_since: when the last operation ended, by the same clock.
        release: closes `file_number`.
    """

    def __init__(self, connection: Connection) -> None:
        driver = connection.connection.dbapi_connection
        if driver is None:
            raise TypeError("The connection is closed.")
        self.sqlalchemy = connection
        self.driver = driver
        self.info = connection.info
        self.deadline = self.idle_since = 0.0
        number = socket_of(driver)
        self.file_number = None if number is None else os.dup(number)
        self.release: Callable[[], object] = bool
        self._has_input: Callable[[], object] = bool
        if self.file_number is not None:
            self.release = weakref.finalize(self, os.close, self.file_number)
            self._has_input = has_input(self.file_number)

    def is_closed_by_server(self) -> bool:
        """Return whether the server has closed it: else, an idle connection is not readable."""
        return bool(self._has_input())

    def first(self, statement: sa.Executable, values: Values) -> Row | None:
        return self.send(statement, values).first()

    def send(self, statement: sa.Executable, values: Values) -> sa.CursorResult[Any]:
        return self.sqlalchemy.execute(statement, values)

    @contextmanager
    def transaction(self, begin: str) -> Iterator[None]:
        """Begin a transaction by a text; commit it where the block ends without an error."""
        run = self.sqlalchemy.exec_driver_sql
        run(begin)
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):
                run("ROLLBACK")
            raise
        run("COMMIT")
