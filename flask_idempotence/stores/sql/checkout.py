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

_IDLE = 60.0
"""Seconds after which a connection that nobody has needed goes back to the pool."""


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
                _end(connection)

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
    """Hands out connections by a deadline, and keeps those that are idle.

    Connecting is bounded by what the driver takes for a time-out, which is two seconds at the
    least, or minutes; waiting for somebody else's connection, by the pool's. Where there is no
    idle connection, another thread therefore does it, and is left behind when it takes too long.

    Args:
        engine: whose connections; nobody else uses it.
        has_gone: tells whether the server has closed a connection while it was idle.
        helps: whether connecting may take long.
    """

    def __init__(
        self, engine: Engine, has_gone: Callable[[Connection], bool], *, helps: bool
    ) -> None:
        self._engine = engine
        self._has_gone = has_gone
        self._helps = helps
        self._of_parents: list[object] = []
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Connection, float]] = []
        self._waiting = 0
        self._overdue = 0
        self._next_at = 0.0

    def forget(self) -> None:
        """Begin anew in a child process, without a word on the parent's connections."""
        # Whoever closes one of them may say good-bye to the server on the parent's behalf.
        self._of_parents.append((self._engine.pool, self._idle))
        self._engine.dispose(close=False)
        self._begin()

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            _end(connection)
        self._engine.dispose()

    def take(self, deadline: float) -> Connection:
        """Return a connection by a time of the monotonic clock.

        Raises:
            SQLAlchemyError: there is none.
        """
        while (connection := self._pop()) is not None:
            if not self._has_gone(connection):
                return connection
            _end(connection)
        try:
            return self._connect_by(deadline) if self._helps else self._engine.connect()
        finally:
            with self._lock:
                self._waiting -= 1

    def give_back(self, connection: Connection) -> None:
        """Take back a connection whose work has ended well; the others are closed."""
        now = time.monotonic()
        with self._lock:
            is_kept = not self._waiting
            if is_kept:
                self._idle.append((connection, now))
            is_old = self._idle and self._idle[0][1] < now - _IDLE
            surplus = self._idle.pop(0)[0] if is_old else None
        if not is_kept:  # the pool passes it on
            connection.close()
        if surplus is not None:
            surplus.close()

    def _pop(self) -> Connection | None:
        """Return an idle connection; who gets none waits from now on for one to be given back."""
        with self._lock:
            if self._idle:
                return self._idle.pop()[0]
            self._waiting += 1
            return None

    def _connect_by(self, deadline: float) -> Connection:
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


def _end(connection: Connection) -> None:
    """Close a connection itself: its pool may be closed by now, and would keep it open."""
    connection.invalidate()
    connection.close()
