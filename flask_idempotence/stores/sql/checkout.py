"""Getting a connection in time, from a pool that knows no deadline but its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import TimeoutError as PoolTimeout

_OVERDUE = 3
"""Attempts to connect that nobody waits for any more, from which on others are not begun."""

_PAUSE = 1.0
"""Seconds until one is begun even so."""


class _Attempt:
    """One attempt to get a connection, in a thread of its own."""

    def __init__(self, connect: Callable[[], Connection], ended: Callable[[], None]) -> None:
        self._connect = connect
        self._ended = ended
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._is_overdue = False
        self._connection: Connection | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            connection = self._connect()
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for it
            self._error = error
            connection = None
        with self._lock:
            self._connection = connection
            self._is_over.set()
        if self._is_overdue:
            self._ended()
            if connection is not None:
                connection.close()

    def wait(self, seconds: float) -> Connection | None:
        """Return the connection; None where it takes longer."""
        self._is_over.wait(seconds)
        with self._lock:
            if not self._is_over.is_set():
                self._is_overdue = True
                return None
        if self._error is not None:
            raise self._error
        return self._connection


class Checkout:
    """Takes connections from an engine's pool by a deadline.

    Connecting is bounded by what the driver takes for a time-out, which is two seconds at the
    least, or minutes; waiting for somebody else's connection, by the pool's. Where there is no
    idle connection, another thread therefore does it, and is left behind when it takes too long.

    Args:
        engine: whose connections.
        helps: whether connecting may take long.
    """

    def __init__(self, engine: Engine, *, helps: bool) -> None:
        self._engine = engine
        self._helps = helps
        self.forget()

    def forget(self) -> None:
        """Forget the attempts of a parent process."""
        self._lock = threading.Lock()
        self._overdue = 0
        self._next_at = 0.0

    def take(self, deadline: float) -> Connection:
        """Return a connection by a time of the monotonic clock.

        Raises:
            SQLAlchemyError: there is none.
        """
        idle = getattr(self._engine.pool, "checkedin", None)
        if not self._helps or (idle is not None and idle()):
            return self._engine.connect()
        if not self._may_begin():
            raise PoolTimeout("The database has fallen silent.")
        attempt = _Attempt(self._engine.connect, self._ended)
        threading.Thread(target=attempt.run, daemon=True).start()
        connection = attempt.wait(deadline - time.monotonic())
        if connection is None:
            with self._lock:
                self._overdue += 1
                self._next_at = time.monotonic() + _PAUSE
            raise PoolTimeout("Connecting took too long.")
        return connection

    def _may_begin(self) -> bool:
        with self._lock:
            if self._overdue < _OVERDUE:
                return True
            now = time.monotonic()
            if now < self._next_at:
                return False
            self._next_at = now + _PAUSE
            return True

    def _ended(self) -> None:
        with self._lock:
            self._overdue -= 1
