"""Base class of the databases: one subclass each, in a file of its own."""

from __future__ import annotations

import enum
from abc import abstractmethod
from collections.abc import MutableMapping
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

from sqlalchemy import Connection, Engine
from sqlalchemy.engine.interfaces import DBAPIConnection

from ..facts import DatabaseFacts
from .statements import Statements

DEADLINE = "flask_idempotence deadline"
"""Key of the deadline of the current operation in a connection's `info`: a time of the monotonic
clock."""


class Trouble(enum.Enum):
    """The effect of an error on the statement that has failed."""

    UNKNOWN = enum.auto()
    """It may have taken effect: the connection has broken."""
    REFUSED = enum.auto()
    """It has taken no effect."""
    CONFLICT = enum.auto()
    """It has taken no effect and may be sent again: a deadlock, a serialization failure."""
    NOT_READY = enum.auto()
    """It has taken no effect: the table is missing, or is another one."""


class Dialect(Statements):
    """A database: its statements, its connections, its errors."""

    connects_at_once: ClassVar[bool] = False
    """Whether the driver connects without waiting for a server."""

    def check(self, engine: Engine) -> None:
        """Return if an engine can be used.

        Raises:
            ConfigurationError: it cannot.
        """
        del engine

    @abstractmethod
    def prepare(
        self, connection: DBAPIConnection, seconds: float, info: MutableMapping[str, object]
    ) -> None:
        """Set up a new connection of the driver, so that no statement takes longer than this.

        Args:
            connection: the driver's own, not used by any other thread.
            seconds: the deadline of an operation.
            info: the `info` of SQLAlchemy's connections over it.
        """

    def operation(self, connection: Connection, *, writes: bool) -> AbstractContextManager[None]:
        """Return the context of one operation: its transaction, its lock.

        Args:
            connection: commits every statement by itself.
            writes: whether the operation begins with a write.

        Raises:
            StoreError: its turn did not come in time.
        """
        del connection, writes
        return nullcontext()

    def file_number(self, connection: Connection) -> int | None:
        """Return the socket of a connection; None for a database without a server."""
        del connection
        return None

    @abstractmethod
    def trouble(self, error: BaseException) -> Trouble:
        """Return the effect of an error of the driver on its statement."""

    @abstractmethod
    def facts(self, connection: Connection) -> DatabaseFacts:
        """Return the database's version, settings and state."""
