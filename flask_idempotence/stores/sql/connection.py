"""Connections that execute statements: the store's own, and those of an application."""

from __future__ import annotations

import contextlib
import logging
import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.selectable import ExecutableReturnsRows

Values = Mapping[str, object]
Parameters = tuple[object, ...] | Mapping[str, object]
Row = Sequence[Any]


class Change(NamedTuple):
    """The effect of a statement without rows.

    Attributes:
        rows: how many it has written or removed, as its database counts them.
        last_id: the value of MySQL's LAST_INSERT_ID in it.
    """

    rows: int
    last_id: int | None


class Statement:
    """A statement with named parameters, none of them a list, compiled once for one store."""

    def __init__(self, clause: ExecutableReturnsRows) -> None:
        self.clause = clause
        self._compiled: _Compiled | None = None

    def for_driver(self, dialect: Dialect, values: Values) -> tuple[str, Parameters]:
        """Return the text and the parameters that SQLAlchemy would give to the driver."""
        compiled = self._compiled
        if compiled is None:  # now that the engine has connected: it knows the server's version
            compiled = self._compiled = _Compiled(self.clause, dialect)
        return compiled.text, compiled.parameters(values)


class _Compiled:
    def __init__(self, clause: ExecutableReturnsRows, dialect: Dialect) -> None:
        compiled = clause.compile(dialect=dialect)
        if not isinstance(compiled, SQLCompiler):
            raise TypeError(f"{type(clause).__name__} is no statement with parameters.")
        self.text = str(compiled)
        self._order = compiled.positiontup
        self._names = list(compiled.bind_names.values())
        processors = {
            name: bind.type.dialect_impl(dialect).bind_processor(dialect)
            for bind, name in compiled.bind_names.items()
        }
        self._processors: list[tuple[str, Callable[[object], object]]] = [
            (name, process) for name, process in processors.items() if process is not None
        ]
        self._constants = {
            name: value for name, value in compiled.params.items() if value is not None
        }

    def parameters(self, values: Values) -> Parameters:
        named = {**self._constants, **values}
        for name, process in self._processors:
            named[name] = process(named[name])
        if self._order is not None:
            return tuple([named[name] for name in self._order])
        # PyMySQL would escape the others, too.
        is_exact = len(named) == len(self._names)
        return named if is_exact else {name: named[name] for name in self._names}


class DatabaseConnection:
    """A connection to the store's database; the application's own may be in a transaction.

    Args:
        connection: as SQLAlchemy knows it, then an attribute `sqlalchemy`.
        schema: of the store's table, where the connection may see another one by that name.
    """

    def __init__(self, connection: Connection, schema: str | None = None) -> None:
        self.sqlalchemy = connection
        # The table is the one of the claim, also where the application has schemas of its own.
        self._options = {"schema_translate_map": None if schema is None else {None: schema}}

    def rows(self, statement: Statement, values: Values) -> Sequence[Row]:
        return self._execute(statement, values).all()

    def first(self, statement: Statement, values: Values) -> Row | None:
        rows = self.rows(statement, values)
        return rows[0] if rows else None

    def change(self, statement: Statement, values: Values) -> Change:
        """Execute a statement that has no rows."""
        result = self._execute(statement, values)
        return Change(result.rowcount, getattr(result.context.cursor, "lastrowid", None))

    def _execute(self, statement: Statement, values: Values) -> sa.CursorResult[Any]:
        return self.sqlalchemy.execute(statement.clause, values, execution_options=self._options)


class StoreConnection(DatabaseConnection):
    """A connection of the store's own, which commits every statement on its own.

    Statements go to the driver's cursor at once: `Connection.execute` would take about as long
    as a database on the same machine does. Errors are SQLAlchemy's all the same. Where statements
    are logged, or functions listen to those of all engines, they go by way of SQLAlchemy.

    Attributes:
        driver: the connection as its driver knows it.
        info: the `info` of both, which lasts as long as the driver's.
        file_number: the socket; None for a database without a server.
        deadline: of the current operation, by the monotonic clock.
    """

    def __init__(
        self, connection: Connection, file_number: Callable[[DBAPIConnection], int | None]
    ) -> None:
        super().__init__(connection)
        driver = connection.connection.dbapi_connection
        if driver is None:
            raise TypeError("The connection is closed.")
        self.driver = driver
        self.info = connection.info
        self.file_number = file_number(driver)
        self.deadline = 0.0
        self._cursor = driver.cursor()  # a new one each time would take longer than the rest
        self._dialect = connection.dialect
        self._is_logged = connection.engine.logger.isEnabledFor(logging.INFO)
        self._listeners = connection.engine.dispatch
        self._is_observed, self._poll = False, None
        if self.file_number is not None and hasattr(select, "poll"):  # not on Windows
            self._poll = select.poll()
            self._poll.register(self.file_number, select.POLLIN)

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
        if self._poll is not None:
            return bool(self._poll.poll(0))
        if self.file_number is not None:
            return bool(select.select([self.file_number], [], [], 0)[0])
        return False

    def rows(self, statement: Statement, values: Values) -> Sequence[Row]:
        if self._is_observed:
            return super().rows(statement, values)
        text, parameters = statement.for_driver(self._dialect, values)
        try:
            self._cursor.execute(text, parameters)
            return self._cursor.fetchall()
        except BaseException as error:
            self._fail(error)
            raise

    def change(self, statement: Statement, values: Values) -> Change:
        if self._is_observed:
            return super().change(statement, values)
        self._run(*statement.for_driver(self._dialect, values))
        return Change(self._cursor.rowcount, getattr(self._cursor, "lastrowid", None))

    def run_text(self, text: str) -> None:
        if self._is_observed:
            self.sqlalchemy.exec_driver_sql(text)
        else:
            self._run(text)

    @contextmanager
    def transaction(self, begin: str) -> Iterator[None]:
        """Begin a transaction by a text; commit it where the block ends without an error."""
        self.run_text(begin)
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):
                self.run_text("ROLLBACK")
            raise
        self.run_text("COMMIT")

    def _run(self, text: str, *parameters: Parameters) -> None:
        try:
            self._cursor.execute(text, *parameters)
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """Raise SQLAlchemy's error for one of the driver.

        As by SQLAlchemy itself, a connection is closed that is broken, or was interrupted before
        its answer had come; so is one whose driver has raised an error of its socket's.
        """
        dialect = self._dialect
        of_driver = dialect.loaded_dbapi.Error
        if isinstance(error, of_driver):
            is_broken = dialect.is_disconnect(error, self.driver, None)
            if is_broken:
                self.sqlalchemy.invalidate(error)
            raise DBAPIError.instance(
                None, None, error, of_driver, connection_invalidated=is_broken, dialect=dialect
            ) from error
        self.sqlalchemy.invalidate(error)
