"""Connections that execute statements: the store's own, and those of an application."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError

from ..process import has_input

Values = Mapping[str, object]
Parameters = Any  # a tuple or a mapping, as the driver takes them
Row = Sequence[Any]
Result = Any
"""A driver's cursor, or SQLAlchemy's result: `rowcount` and `lastrowid`."""

_LIMITS = {
    "psycopg": ("connect_timeout",),
    "psycopg2": ("connect_timeout",),
    "pg8000": ("timeout",),
    # Its connect_timeout does not include the server's greeting.
    "pymysql": ("connect_timeout", "read_timeout"),
    "mysqldb": ("connect_timeout",),
}
"""The arguments by which a driver limits connecting."""


def limited_engine(url: URL, options: Mapping[str, Any], deadline: float) -> Engine:
    """Make an engine whose connections are limited, each to one host of several.

    Without a limit, psycopg waits 130 seconds for a host that does not answer, pg8000 for ever.
    One that the URL, or `connect_args` among the options of `create_engine`, names counts.
    """
    driver = url.get_driver_name()
    own: Mapping[str, object] = options.get("connect_args") or {}
    seconds = math.ceil(min(max(deadline, 2), 60))  # libpq and psycopg take less than two as two
    limits = dict.fromkeys(_LIMITS.get(driver, ()), seconds)
    is_named = any(name in url.query or name in own for name in limits)
    if is_named or (driver.startswith("psycopg") and "PGCONNECT_TIMEOUT" in os.environ):
        limits = {}
    engine = create_engine(url, **{**options, "connect_args": {**limits, **own}})
    if limits and driver in ("pg8000", "pymysql"):
        event.listen(engine, "connect", _relax)
    return engine


def _relax(connection: DBAPIConnection, _record: object) -> None:
    """Lift a limit that would hold for statements, too; there is no public way."""
    if hasattr(connection, "_usock"):
        connection._usock.settimeout(None)  # noqa: SLF001 - of pg8000
    else:
        connection._read_timeout = None  # noqa: SLF001 - of PyMySQL


def socket_of(driver: DBAPIConnection) -> int | None:
    """Return the file number of a driver's connection; None for a database without a server."""
    # psycopg, psycopg2 and mysqlclient show it; PyMySQL and pg8000 hide it.
    hidden = (getattr(driver, name, None) for name in ("_usock", "_sock"))
    for holder in (driver, *hidden):
        if (fileno := getattr(holder, "fileno", None)) is not None:
            return int(fileno())
    return None


class Compiled:
    """A statement with named parameters, none of them a list, as SQLAlchemy would send it."""

    def __init__(self, statement: sa.ClauseElement, dialect: Dialect) -> None:
        compiled: Any = statement.compile(dialect=dialect)
        names = compiled.bind_names
        self.text = str(compiled)
        self._is_positional: bool = compiled.positional
        self._names: Sequence[str] = compiled.positiontup or [*names.values()]
        self._constants = {
            name: value for name, value in compiled.params.items() if value is not None
        }
        processors = {
            name: bind.type.dialect_impl(dialect).bind_processor(dialect)
            for bind, name in names.items()
        }
        self._processors: list[tuple[str, Callable[[object], object]]] = [
            (name, process) for name, process in processors.items() if process is not None
        ]

    def parameters(self, values: Values) -> Parameters:
        named = {**self._constants, **values}
        for name, process in self._processors:
            named[name] = process(named[name])
        if self._is_positional:
            return tuple([named[name] for name in self._names])
        # PyMySQL would escape the others, too.
        return {name: named[name] for name in self._names}


class StoreConnection:
    """A connection of the store's own, which commits every statement on its own.

    Statements go to the driver's cursor at once: `Connection.execute` would take about as long
    as a database on the same machine does. Errors are SQLAlchemy's all the same. Where statements
    are logged, or functions listen to those of all engines, they go by way of SQLAlchemy.

    Attributes:
        sqlalchemy: the same connection, for statements with lists.
        info: it lasts as long as the driver's connection.
        file_number: the socket; None for a database without a server.
        deadline: of the current operation, by the monotonic clock.
    """

    def __init__(self, connection: Connection, compiled: dict[object, Compiled]) -> None:
        driver = connection.connection.dbapi_connection
        if driver is None:
            raise TypeError("The connection is closed.")
        self.sqlalchemy = connection
        self.driver = driver
        self.info = connection.info
        self.file_number = socket_of(driver)
        self.deadline = 0.0
        self._cursor = driver.cursor()  # a new one each time would take longer than the rest
        self._dialect = connection.dialect
        self._compiled = compiled
        self._is_logged = connection.engine.logger.isEnabledFor(logging.INFO)
        self._listeners = connection.engine.dispatch
        self._is_observed = False
        self._has_input = None if self.file_number is None else has_input(self.file_number)

    def begin(self, deadline: float) -> None:
        self.deadline = deadline
        listeners = self._listeners
        self._is_observed = (
            self._is_logged
            or bool(listeners.before_cursor_execute)
            or bool(listeners.after_cursor_execute)
        )

    def is_closed_by_server(self) -> bool:
        """Return whether the server has closed it: else, an idle connection is not readable."""
        return self._has_input is not None and bool(self._has_input())

    def first(self, statement: sa.ClauseElement, values: Values) -> Row | None:
        rows = self.send(statement, values, has_rows=True)
        return rows[0] if rows else None

    def send(self, statement: sa.ClauseElement, values: Values, *, has_rows: bool = False) -> Any:
        compiled = self._compiled.get(statement)
        if compiled is None:
            compiled = self._compiled[statement] = Compiled(statement, self._dialect)
        return self.run(compiled.text, compiled.parameters(values), has_rows=has_rows)

    @contextmanager
    def transaction(self, begin: str) -> Iterator[None]:
        """Begin a transaction by a text; commit it where the block ends without an error."""
        self.run(begin)
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):
                self.run("ROLLBACK")
            raise
        self.run("COMMIT")

    def run(self, text: str, *parameters: Parameters, has_rows: bool = False) -> Any:
        """Execute a text, return its rows or its result, and raise SQLAlchemy's errors.

        As by SQLAlchemy itself, a connection is closed that is broken, or was interrupted before
        its answer had come; so is one whose driver has raised an error of its socket's.
        """
        if self._is_observed:
            result = self.sqlalchemy.exec_driver_sql(text, *parameters)
            return result.all() if has_rows else result
        dialect = self._dialect
        try:
            self._cursor.execute(text, *parameters)
            return self._cursor.fetchall() if has_rows else self._cursor
        except dialect.loaded_dbapi.Error as error:
            is_broken = dialect.is_disconnect(error, self.driver, None)
            if is_broken:
                self.sqlalchemy.invalidate(error)
            raise DBAPIError.instance(
                None,
                None,
                error,
                dialect.loaded_dbapi.Error,
                connection_invalidated=is_broken,
                dialect=dialect,
            ) from error
        except BaseException as error:
            self.sqlalchemy.invalidate(error)
            raise
