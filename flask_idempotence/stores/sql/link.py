"""Connections of our own to the application's database, one deadline an operation."""

from __future__ import annotations

import select
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ...errors import StoreError, StoreNotReady
from ...forks import call_in_children
from .checkout import Checkout
from .dialect import DEADLINE, Dialect, Trouble
from .watchdog import Watchdog

T = TypeVar("T")

_ATTEMPTS = 2
"""How often a repeatable operation is sent at most where it is unknown what became of it."""

_CONFLICTS = 5
"""How often an operation is tried again that has met another transaction."""

_PAUSE = 0.005
"""Seconds before the first of these."""


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
        pool = engine.pool.recreate()
        event.listen(pool, "connect", lambda made, _: dialect.prepare(made, seconds))
        twin = Engine(pool, engine.dialect, engine.url, hide_parameters=True)
        self._engine = twin.execution_options(isolation_level="AUTOCOMMIT")
        self._of_parents: list[Any] = []
        self._checkout = Checkout(self._engine, helps=not dialect.connects_at_once(pool))
        self._watchdog = Watchdog()
        self.close = self._engine.dispose
        weakref.finalize(self, twin.dispose)  # drivers complain about what is simply forgotten
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
        attempts, conflicts = _ATTEMPTS if repeatable else 1, _CONFLICTS
        while True:
            sent = False
            try:
                with self._connection(deadline) as connection:
                    sent = True
                    if not writes:
                        return work(connection)
                    with self._dialect.turn(connection):
                        return work(connection)
            except PoolTimeout:
                raise StoreError("TimeoutError: No connection was free.", sent=sent) from None
            except DBAPIError as error:
                trouble = self._trouble(error)
                if trouble is Trouble.AGAIN and conflicts and _pause(conflicts, deadline):
                    conflicts -= 1
                    continue
                attempts -= 1
                if trouble is Trouble.UNKNOWN and attempts and time.monotonic() < deadline:
                    continue
                raise self._told(error, trouble, sent=sent) from error.orig
            except SQLAlchemyError as error:
                raise StoreError(f"{type(error).__name__}: {_first_line(error)}") from None

    @contextmanager
    def _connection(self, deadline: float) -> Iterator[Connection]:
        connection = self._checkout.take(deadline)
        try:
            number = self._dialect.file_number(connection.connection.dbapi_connection)
            while number is not None and _has_gone(number):
                # Closed by the server while it was idle; others may have been, too.
                connection.invalidate()
                connection.close()
                connection = self._checkout.take(deadline)
                number = self._dialect.file_number(connection.connection.dbapi_connection)
            connection.info[DEADLINE] = deadline
            with self._watchdog.watch(number, deadline):
                yield connection
        finally:
            connection.close()

    def _trouble(self, error: DBAPIError) -> Trouble:
        if error.connection_invalidated or error.orig is None:
            return Trouble.UNKNOWN
        return self._dialect.trouble(error.orig)

    @staticmethod
    def _told(error: DBAPIError, trouble: Trouble, *, sent: bool) -> StoreError:
        told = f"{type(error.orig).__name__}: {_first_line(error.orig)}"
        if trouble is Trouble.NOT_READY:
            return StoreNotReady(
                f"{told}. Run 'flask idempotence init-db', or the migration that makes the table."
            )
        return StoreError(told, sent=sent and trouble is Trouble.UNKNOWN)

    def _forget(self) -> None:
        # Whoever closes a connection of the parent's may say good-bye to the server on its behalf.
        self._of_parents.append(self._engine.pool)
        self._engine.dispose(close=False)
        self._dialect.forget()
        self._watchdog.forget()
        self._checkout.forget()


def _first_line(error: object) -> str:
    # What follows may hold values.
    return str(error).strip().partition("\n")[0]


def _has_gone(number: int) -> bool:
    # Nobody speaks on an idle connection, except for a server that says good-bye.
    try:
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))
    except AttributeError:  # Windows
        return bool(select.select([number], [], [], 0)[0])


def _pause(conflicts: int, deadline: float) -> bool:
    seconds = _PAUSE * 2 ** (_CONFLICTS - conflicts)
    if time.monotonic() + seconds >= deadline:
        return False
    time.sleep(seconds)
    return True
