"""Connections of the store's own, each checked out within a deadline."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ..process import call_in_children, start_daemon
from .dialect import DEADLINE, Dialect
from .watchdog import Watchdog

_MOST_OVERDUE = 3
"""Attempts to connect that may be overdue; beyond that, further ones fail at once."""

_PROBE_EVERY = 1.0
"""Seconds after which one is begun even so."""

_MAX_IDLE = 60.0
"""Seconds after which an unused connection goes back to SQLAlchemy's pool."""


class ConnectionPool:
    """Hands out connections by a deadline, and keeps those that are idle.

    Connecting is bounded by the driver's time-out, which is two seconds or more; waiting for
    another thread's connection, by that of SQLAlchemy's pool. Where no connection is idle, a
    helper thread therefore connects, and is abandoned at the deadline.

    Args:
        engine: the application's; it is neither used nor altered. The connections are made as it
            makes them, in a pool of the same size: a view may hold one while its guard needs one.
        dialect: of its database.
        seconds: the deadline of an operation.
    """

    def __init__(self, engine: Engine, dialect: Dialect, seconds: float) -> None:
        twin = twin_of(engine)
        event.listen(
            twin, "connect", lambda made, record: dialect.prepare(made, seconds, record.info)
        )
        self._engine = twin.execution_options(isolation_level="AUTOCOMMIT")
        self._dialect = dialect
        self._watchdog = Watchdog()
        self._of_parents: list[object] = []
        self._begin()
        call_in_children(self._forget)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[Connection, float]] = []
        self._waiting = 0
        self._overdue = 0
        self._probe_at = 0.0

    def _forget(self) -> None:
        # Closing a parent's connection would tell the server that the parent had closed it.
        self._of_parents.append((self._engine.pool, self._idle))
        self._engine.dispose(close=False)
        self._begin()

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they come back."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            _discard(connection)
        self._engine.dispose()

    @contextmanager
    def connection(self, deadline: float) -> Iterator[Connection]:
        """Check a connection out for a block that must end by a time of the monotonic clock.

        Raises:
            SQLAlchemyError: there is none in time.
        """
        connection = self._check_out(deadline)
        try:
            connection.info[DEADLINE] = deadline
            file_number = self._dialect.file_number(connection)
            if file_number is None:
                yield connection
            else:
                with self._watchdog.watch(file_number, deadline):
                    yield connection
        except BaseException:
            connection.close()
            raise
        self._check_in(connection)

    def _check_out(self, deadline: float) -> Connection:
        while (connection := self._pop_idle()) is not None:
            if not self._is_closed_by_server(connection):
                return connection
            _discard(connection)
        try:
            return self._connect(deadline)
        finally:
            with self._lock:
                self._waiting -= 1

    def _pop_idle(self) -> Connection | None:
        """Return an idle connection; without one, the thread waits for one from now on."""
        with self._lock:
            if self._idle:
                return self._idle.pop()[0]
            self._waiting += 1
            return None

    def _check_in(self, connection: Connection) -> None:
        now = time.monotonic()
        with self._lock:
            is_kept = not self._waiting
            if is_kept:
                self._idle.append((connection, now))
            is_surplus = self._idle and self._idle[0][1] < now - _MAX_IDLE
            surplus = self._idle.pop(0)[0] if is_surplus else None
        if not is_kept:  # SQLAlchemy's pool hands it to a waiting thread
            connection.close()
        if surplus is not None:
            surplus.close()

    def _is_closed_by_server(self, connection: Connection) -> bool:
        # An idle connection is readable only where the server has closed it.
        file_number = self._dialect.file_number(connection)
        if file_number is None:
            return False
        if not hasattr(select, "poll"):  # Windows
            return bool(select.select([file_number], [], [], 0)[0])
        poll = select.poll()
        poll.register(file_number, select.POLLIN)
        return bool(poll.poll(0))

    def _connect(self, deadline: float) -> Connection:
        if not self._may_connect():
            raise PoolTimeout("The database does not answer.")
        attempt: Future[Connection] = Future()

        def connect() -> None:
            try:
                attempt.set_result(self._engine.connect())
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
                attempt.set_exception(error)

        if not start_daemon(connect, "flask-idempotence-connecting"):
            raise PoolTimeout("The process can have no further thread to connect in.")
        if wait([attempt], max(0, deadline - time.monotonic())).done:
            return attempt.result()
        with self._lock:
            self._overdue += 1
            self._probe_at = time.monotonic() + _PROBE_EVERY
        attempt.add_done_callback(self._came_late)
        raise PoolTimeout("Connecting took too long.")

    def _may_connect(self) -> bool:
        now = time.monotonic()
        with self._lock:
            if self._overdue < _MOST_OVERDUE:
                return True
            is_probe = now >= self._probe_at
            if is_probe:
                self._probe_at = now + _PROBE_EVERY
            return is_probe

    def _came_late(self, attempt: Future[Connection]) -> None:
        with self._lock:
            self._overdue -= 1
        if attempt.exception() is None:
            _discard(attempt.result())


def twin_of(engine: Engine) -> Engine:
    """Return an engine that connects as another one does, with a pool of its own."""
    return Engine(engine.pool.recreate(), engine.dialect, engine.url, hide_parameters=True)


def _discard(connection: Connection) -> None:
    # Its pool may be closed by now, and would keep a returned connection open.
    connection.invalidate()
    connection.close()
