"""Carries out each operation within one deadline, and repeats it where that is safe."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError, DBAPIError, ProgrammingError, SQLAlchemyError

from ...errors import StoreError, StoreNotReady
from .connection import StoreConnection
from .dialect import Dialect, Trouble
from .pool import ConnectionPool
from .table import NAME

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

REMEDY = (
    f"The table {NAME} is missing, or does not fit this release: run "
    "'flask idempotence init-db', or your migration."
)

_PAUSES = tuple(0.005 * 2**number for number in range(5))
"""Seconds before each new attempt after a conflict with another transaction."""


class Executor:
    """Carries out operations on pooled connections that commit every statement on its own.

    Args:
        engine: the application's.
        dialect: of its database.
        seconds: the deadline of an operation in all, connecting included.
    """

    def __init__(self, engine: Engine, dialect: Dialect, seconds: float) -> None:
        self.seconds = seconds
        self._dialect = dialect
        self.pool = ConnectionPool(engine, dialect, seconds)
        weakref.finalize(self, self.pool.close)  # drivers warn of connections left open

    def run(
        self,
        work: Callable[[StoreConnection, *Ts], T],
        *values: *Ts,
        writes: bool = True,
        repeatable: bool = True,
    ) -> T:
        """Carry out an operation.

        Args:
            work: the operation: takes a connection, and the values.
            values: of the operation.
            writes: whether it begins with a write.
            repeatable: whether it is sent once more where its effect is unknown.

        Raises:
            StoreError: the database did not answer within the deadline, or refused.
            StoreNotReady: the table is missing.
        """
        deadline = time.monotonic() + self.seconds
        pauses: dict[Trouble, list[float]] | None = None
        is_unsure = False
        while True:
            sent = False
            try:
                with (
                    self.pool.connection(deadline) as connection,
                    self._dialect.operation(connection, writes=writes),
                ):
                    sent = True
                    return work(connection, *values)
            except DBAPIError as error:
                trouble = trouble_of(error, self._dialect)
                is_unsure |= sent and trouble is Trouble.UNKNOWN
                if pauses is None:
                    pauses = {Trouble.UNKNOWN: [0.0] * repeatable, Trouble.CONFLICT: [*_PAUSES]}
                if not _pause(pauses.get(trouble), deadline):
                    raise store_error(error, trouble, sent=is_unsure) from error.orig
            except SQLAlchemyError as error:
                text = f"{type(error).__name__}: {_first_line(error)}"
                raise StoreError(text, sent=sent or is_unsure) from None

    def inspect(
        self, work: Callable[[Connection, *Ts], T], *values: *Ts, writes: bool = True
    ) -> T:
        """Carry out an operation of a command, by way of SQLAlchemy's connection.

        Raises:
            StoreError: as `run` does.
        """
        return self.run(lambda connection: work(connection.sqlalchemy, *values), writes=writes)


def _pause(pauses: list[float] | None, deadline: float) -> bool:
    """Sleep before another attempt; return False where there is none left, or no time."""
    if not pauses or time.monotonic() + pauses[0] >= deadline:
        return False
    time.sleep(pauses.pop(0))
    return True


def trouble_of(error: DBAPIError, dialect: Dialect) -> Trouble:
    """Return the effect of an error on the statement that has failed."""
    if error.connection_invalidated or error.orig is None:
        return Trouble.UNKNOWN
    trouble = dialect.trouble(error.orig)
    if trouble is Trouble.UNKNOWN and isinstance(error, DataError | ProgrammingError):
        return Trouble.REFUSED  # by the driver already
    return trouble


def store_error(error: DBAPIError, trouble: Trouble, *, sent: bool) -> StoreError:
    """Return the error of the store that an error of the driver amounts to."""
    text = f"{type(error.orig).__name__}: {_first_line(error.orig)}"
    if trouble is Trouble.NOT_READY:
        return StoreNotReady(f"{text}.", remedy=REMEDY)
    return StoreError(text, sent=sent)


def _first_line(error: object) -> str:
    # The lines below it may hold values.
    return str(error).strip().partition("\n")[0]
