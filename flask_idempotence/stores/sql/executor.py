"""Carries out each operation within one deadline, and repeats it where that is safe."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ...errors import IdempotenceError, StoreError, StoreNotReady
from .connection import StoreConnection
from .dialect import Dialect, Trouble, trouble_of
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
            work: the operation.
            values: its arguments behind the connection.
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
            except IdempotenceError:
                raise
            except Exception as error:  # noqa: BLE001 - drivers raise their sockets' errors, too
                trouble = trouble_of(error, self._dialect)
                is_unsure |= sent and trouble is Trouble.UNKNOWN
                if pauses is None:
                    pauses = {Trouble.UNKNOWN: [0.0] * repeatable, Trouble.CONFLICT: [*_PAUSES]}
                is_waiting = isinstance(error, PoolTimeout)
                if is_waiting or not _pause(pauses.get(trouble), deadline):
                    raise store_error(error, trouble, sent=is_unsure) from cause_of(error)

    def inspect(
        self, work: Callable[[Connection, *Ts], T], *values: *Ts, writes: bool = True
    ) -> T:
        """Carry out an operation of a command, by way of SQLAlchemy's connection."""
        return self.run(lambda connection: work(connection.sqlalchemy, *values), writes=writes)


def _pause(pauses: list[float] | None, deadline: float) -> bool:
    """Sleep before another attempt; return False where there is none left, or no time."""
    if not pauses or time.monotonic() + pauses[0] >= deadline:
        return False
    time.sleep(pauses.pop(0))
    return True


def store_error(error: BaseException, trouble: Trouble, *, sent: bool) -> StoreError:
    """Return the error of the store for one of SQLAlchemy, of the driver or of its socket."""
    cause = getattr(error, "orig", None) or error
    # The lines below the first one may hold values.
    text = f"{type(cause).__name__}: {str(cause).strip().partition(chr(10))[0]}"
    if trouble is Trouble.NOT_READY:
        return StoreNotReady(f"{text}.", remedy=REMEDY)
    return StoreError(text, sent=sent)


def cause_of(error: BaseException) -> BaseException | None:
    """Return the driver's error, which quotes no values as SQLAlchemy's own do."""
    cause = getattr(error, "orig", None) or error
    return None if isinstance(cause, SQLAlchemyError) else cause
