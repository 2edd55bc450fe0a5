"""Connections of our own to the application's database, one deadline an operation."""

from __future__ import annotations

import select
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DataError, DBAPIError, ProgrammingError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ...errors import StoreError, StoreNotReady
from ..process import call_in_children
from .checkout import Checkout
from .dialect import DEADLINE, Dialect, Trouble
from .table import NAME
from .watchdog import Watchdog

T = TypeVar("T")

REMEDY = (
    f"The table {NAME} is missing, or is not the one that this release needs: run "
    "'flask idempotence init-db', or your migration."
)

_ATTEMPTS = 2
"""How often a repeatable operation is sent at most where it is unknown what became of it."""

_CONFLICTS = 5
"""How often an operation is tried again that has met another transaction."""

_PAUSE = 0.005
"""Seconds before the first of these."""


class _Patience:
    """How often an operation may be sent again.

    Attributes:
        is_unsure: whether it may have taken effect although it has failed.
    """

    def __init__(self, deadline: float, attempts: int) -> None:
        self._deadline = deadline
        self._attempts = attempts
        self._conflicts = 0
        self.is_unsure = False

    def allows_another(self, trouble: Trouble, *, sent: bool) -> bool:
        """Whether it may be sent again, after a pause where that helps."""
        self.is_unsure |= sent and trouble is Trouble.UNKNOWN
        if trouble is Trouble.UNKNOWN:
            self._attempts -= 1
            return self._attempts > 0 and time.monotonic() < self._deadline
        if trouble is not Trouble.AGAIN or self._conflicts == _CONFLICTS:
            return False
        seconds = _PAUSE * 2**self._conflicts
        self._conflicts += 1
        if time.monotonic() + seconds >= self._deadline:
            return False
        time.sleep(seconds)
        return True


class Link:
    """Carries out work on connections of its own, each call within one deadline.

    The connections are made as the engine makes its own, but are others, in a pool of the same
    size: a view may hold one of the engine's while its guard needs one.

    Args:
        engine: the application's; it is neither used nor altered.
        dialect: what is particular to its database.
        seconds: the deadline of a call in all, connecting included.
    """

    def __init__(self, engine: Engine, dialect: Dialect, seconds: float) -> None:
        self.seconds = seconds
        self._dialect = dialect
        self._of_application = engine
        pool = engine.pool.recreate()
        event.listen(
            pool, "connect", lambda made, record: dialect.prepare(made, seconds, record.info)
        )
        twin = Engine(pool, engine.dialect, engine.url, hide_parameters=True)
        self._checkout = Checkout(
            twin.execution_options(isolation_level="AUTOCOMMIT"),
            lambda connection: _has_gone(dialect, connection),
            helps=not dialect.connects_at_once(pool),
        )
        self._watchdog = Watchdog()
        self.close = self._checkout.close
        weakref.finalize(self, self.close)  # drivers complain about what is simply forgotten
        call_in_children(self._forget)

    def run(
        self, work: Callable[[Connection], T], *, writes: bool = True, repeatable: bool = True
    ) -> T:
        """Carry out some work on a connection that commits every statement by itself.

        Args:
            work: is given the connection.
            writes: whether it is to wait for its turn to write first.
            repeatable: whether it may be done again where it is unknown if it took effect.

        Raises:
            StoreError: the database did not answer within the deadline, or refused.
            StoreNotReady: the table is not there.
        """
        deadline = time.monotonic() + self.seconds
        patience = _Patience(deadline, _ATTEMPTS if repeatable else 1)
        while True:
            sent = False
            try:
                with (
                    self._connection(deadline) as connection,
                    self._dialect.transaction(connection),
                ):
                    sent = True
                    if not writes:
                        return work(connection)
                    with self._dialect.turn(connection):
                        return work(connection)
            except DBAPIError as error:
                trouble = self._trouble(error)
                if not patience.allows_another(trouble, sent=sent):
                    raise self._told(error, trouble, sent=patience.is_unsure) from error.orig
            except PoolTimeout as error:
                told = f"TimeoutError: {_first_line(error)}"
                raise StoreError(told, sent=patience.is_unsure) from None
            except SQLAlchemyError as error:
                told = f"{type(error).__name__}: {_first_line(error)}"
                raise StoreError(told, sent=sent or patience.is_unsure) from None

    def not_ready(self, error: DBAPIError) -> StoreNotReady | None:
        """Return what an error on another's connection says of the table, None for nothing."""
        trouble = self._trouble(error)
        told = self._told(error, trouble, sent=False)
        return told if isinstance(told, StoreNotReady) else None

    def run_unhurried(self, work: Callable[[Connection], T]) -> T:
        """Carry out some work in one transaction of its own, without a deadline.

        Raises:
            StoreError: the database refused, or is not there.
        """
        engine = self._of_application
        alone = Engine(engine.pool.recreate(), engine.dialect, engine.url, hide_parameters=True)
        try:
            with alone.begin() as connection:
                return work(connection)
        except DBAPIError as error:
            raise self._told(error, self._trouble(error), sent=True) from error.orig
        finally:
            alone.dispose()

    @contextmanager
    def _connection(self, deadline: float) -> Iterator[Connection]:
        connection = self._checkout.take(deadline)
        try:
            connection.info[DEADLINE] = deadline
            number = self._dialect.file_number(connection.connection.dbapi_connection)
            with self._watchdog.watch(number, deadline):
                yield connection
        except BaseException:
            connection.close()
            raise
        self._checkout.give_back(connection)

    def _trouble(self, error: DBAPIError) -> Trouble:
        if error.connection_invalidated or error.orig is None:
            return Trouble.UNKNOWN
        trouble = self._dialect.trouble(error.orig)
        if trouble is Trouble.UNKNOWN and isinstance(error, DataError | ProgrammingError):
            return Trouble.REFUSED  # by the driver already
        return trouble

    @staticmethod
    def _told(error: DBAPIError, trouble: Trouble, *, sent: bool) -> StoreError:
        told = f"{type(error.orig).__name__}: {_first_line(error.orig)}"
        if trouble is Trouble.NOT_READY:
            return StoreNotReady(f"{told}.", remedy=REMEDY)
        return StoreError(told, sent=sent)

    def _forget(self) -> None:
        self._dialect.forget()
        self._watchdog.forget()
        self._checkout.forget()


def _first_line(error: object) -> str:
    # What follows may hold values.
    return str(error).strip().partition("\n")[0]


def _has_gone(dialect: Dialect, connection: Connection) -> bool:
    # Nobody speaks on an idle connection, except for a server that says good-bye.
    number = dialect.file_number(connection.connection.dbapi_connection)
    if number is None:
        return False
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([number], [], [], 0)[0])
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))
