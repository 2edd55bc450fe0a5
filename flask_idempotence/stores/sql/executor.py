"""Carries out each operation within one deadline, and repeats it where that is safe."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError, DBAPIError, ProgrammingError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ...errors import StoreError, StoreNotReady
from .dialect import Dialect, Trouble
from .pool import ConnectionPool
from .table import NAME

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

REMEDY = (
    f"The table {NAME} is missing, or is not the one that this release needs: run "
    "'flask idempotence init-db', or your migration."
)

_ATTEMPTS = 2
"""How often a repeatable operation is sent at most while its effect is unknown."""

_CONFLICTS = 5
"""How often an operation is tried again after a conflict with another transaction."""

_PAUSE = 0.005
"""Seconds before the first of these; doubled before each further one."""


class _Retries:
    """The retries of one operation.

    Attributes:
        is_unsure: whether it may have taken effect although it has failed.
    """

    def __init__(self, deadline: float, attempts: int) -> None:
        self._deadline = deadline
        self._attempts = attempts
        self._conflicts = 0
        self.is_unsure = False

    def allow(self, trouble: Trouble, *, sent: bool) -> bool:
        """Return whether the operation may be sent again, after a pause where that helps."""
        if trouble is Trouble.UNKNOWN:
            self.is_unsure |= sent
            self._attempts -= 1
            return self._attempts > 0 and time.monotonic() < self._deadline
        if trouble is not Trouble.CONFLICT or self._conflicts == _CONFLICTS:
            return False
        pause = _PAUSE * 2**self._conflicts
        self._conflicts += 1
        if time.monotonic() + pause >= self._deadline:
            return False
        time.sleep(pause)
        return True


class Executor:
    """Carries out operations on pooled connections that commit every statement by themselves.

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

    def read(self, work: Callable[[Connection, *Ts], T], *values: *Ts) -> T:
        """Carry out an operation that does not begin with a write; as `run`."""
        return self._run(lambda connection: work(connection, *values), writes=False)

    def run(
        self, work: Callable[[Connection, *Ts], T], *values: *Ts, repeatable: bool = True
    ) -> T:
        """Carry out an operation.

        Args:
            work: takes the connection and the values.
            values: the operation's own.
            repeatable: whether it may be sent again where its effect is unknown.

        Raises:
            StoreError: the database did not answer within the deadline, or refused.
            StoreNotReady: the table is missing.
        """
        return self._run(
            lambda connection: work(connection, *values), attempts=_ATTEMPTS if repeatable else 1
        )

    def _run(
        self,
        work: Callable[[Connection], T],
        *,
        writes: bool = True,
        attempts: int = _ATTEMPTS,
    ) -> T:
        deadline = time.monotonic() + self.seconds
        retries = _Retries(deadline, attempts)
        while True:
            sent = False
            try:
                with (
                    self.pool.connection(deadline) as connection,
                    self._dialect.operation(connection, writes=writes),
                ):
                    sent = True
                    return work(connection)
            except DBAPIError as error:
                trouble = trouble_of(error, self._dialect)
                if not retries.allow(trouble, sent=sent):
                    raise store_error(error, trouble, sent=retries.is_unsure) from error.orig
            except PoolTimeout as error:
                text = f"TimeoutError: {_first_line(error)}"
                raise StoreError(text, sent=retries.is_unsure) from None
            except SQLAlchemyError as error:
                text = f"{type(error).__name__}: {_first_line(error)}"
                raise StoreError(text, sent=sent or retries.is_unsure) from None


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
