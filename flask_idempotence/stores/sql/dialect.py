"""What every database has to tell of itself."""

from __future__ import annotations

import enum
from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sqlalchemy import Connection, Engine, Pool

from ..facts import DatabaseFacts
from .statements import Statements

DEADLINE = "flask_idempotence deadline"
"""Where a connection's `info` holds the time, on the monotonic clock, by which its work must be
done."""


class Trouble(enum.Enum):
    """What an error of the database means for the statement."""

    UNKNOWN = enum.auto()
    """It may have taken effect: the connection has broken."""
    REFUSED = enum.auto()
    """It has taken no effect."""
    AGAIN = enum.auto()
    """It has taken no effect and may do so at once: a deadlock, a conflict of transactions."""
    NOT_READY = enum.auto()
    """It has taken no effect: the table is not there, or is another one."""


class Dialect(Statements):
    """The statements of one database, and how it is to be handled."""

    def check(self, engine: Engine) -> None:
        """Return if an engine can be used.

        Raises:
            ConfigurationError: it cannot.
        """
        del engine

    def connects_at_once(self, pool: Pool) -> bool:
        """Whether a connection of this pool never has to be waited for."""
        del pool
        return False

    def turn(self, connection: Connection) -> AbstractContextManager[None]:
        """Wait until it is this thread's turn to write on a connection of ours.

        Raises:
            StoreError: it did not come in time.
        """
        del connection
        return nullcontext()

    def place(self, connection: Connection) -> int | None:
        """Return the number of the table that a connection sees; None where there is but one."""
        del connection
        return None

    def forget(self) -> None:
        """Forget what threads of a parent process were at."""

    def transaction(self, connection: Connection) -> AbstractContextManager[None]:
        """Return the transaction of one operation; none where each statement commits by itself."""
        del connection
        return nullcontext()

    @abstractmethod
    def prepare(self, connection: Any, seconds: float, info: dict[Any, Any]) -> None:
        """Set a new connection of the driver's up, so that no statement takes longer.

        Args:
            connection: the driver's own, not used by anybody else.
            seconds: the deadline of an operation.
            info: what SQLAlchemy's connections over it have for their `info`.
        """

    def file_number(self, connection: Any) -> int | None:
        """Return the socket of a connection of the driver's, None for no such thing."""
        del connection
        return None

    @abstractmethod
    def trouble(self, error: BaseException) -> Trouble:
        """Return what an error of the driver's means."""

    @abstractmethod
    def facts(self, connection: Connection) -> DatabaseFacts:
        """Return what the database says of itself."""
