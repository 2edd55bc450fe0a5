"""Connections of the store's own, each checked out and given up on within a deadline."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ..process import call_in_children, has_input, start_daemon
from .connection import Compiled, StoreConnection, socket_of
from .dialect import Dialect, Info, Trouble, trouble_of

_logger = logging.getLogger("flask_idempotence")

_MOST_OVERDUE = 3
"""Attempts to connect that may be overdue; beyond that, further ones fail at once."""

_PROBE_EVERY = 1.0
"""Seconds after which one is begun even so."""

_MOST_PROBES = 5
"""Probes that may be overdue as well: each is a thread that waits for the driver."""

_LOST_AFTER = 150.0
"""Seconds after which an overdue attempt no longer counts: the driver may wait for ever."""

_MAX_IDLE = 60.0
"""Seconds after which an unused connection goes back to SQLAlchemy's pool."""

_OPENED_AT = "flask_idempotence opened at"
"""Key in the `info` of a connection."""


class ConnectionPool:
    """Lends connections within a deadline, and keeps the idle ones.

    Connecting is bounded by the driver's time-out, which is two seconds or more for each host;
    waiting for another thread's connection, by that of SQLAlchemy's pool. Where no connection is
    idle, a helper thread therefore connects. The caller takes the first one that becomes idle, or
    gives up at its deadline; a later one serves the next caller: else a first host that does not
    answer would hide the second.

    The application's engine is neither used nor altered. The connections are made as it makes
    them, in a pool of the same size: a view may hold one while its guard needs one.
    """

    def __init__(self, engine: Engine, dialect: Dialect, seconds: float) -> None:
        self._engine = twin_of(engine)
        event.listen(self._engine, "connect", lambda made, of: self._prepare(made, of.info))
        event.listen(self._engine, "checkout", lambda made, of, _: self._check(made, of.info))
        self._dialect = dialect
        self._seconds = seconds
        self._compiled: dict[object, Compiled] = {}  # as this server's version demands
        self._of_parents: list[object] = []
        self._begin()
        call_in_children(self._forget)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[tuple[StoreConnection, float]] = []
        self._errors: list[BaseException] = []  # of connecting, for those who wait
        self._waiting = 0
        self._connecting: dict[object, float] = {}  # the deadlines for which threads connect
        self._probe_at = 0.0
        self._broken_at = 0.0

    def _forget(self) -> None:
        # Closing a parent's connection would look to the server as if the parent had closed it.
        self._of_parents.append((self._engine.pool, self._idle))
        self._engine.dispose(close=False)
        self._begin()

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they come back."""
        with self._changed:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            _discard(connection.sqlalchemy)
        self._engine.dispose()

    @contextmanager
    def connection(self, deadline: float) -> Iterator[StoreConnection]:
        """Lend a connection to a block, and shut its socket down at the end of the deadline."""
        connection = self._find(deadline)
        connection.begin(deadline)
        if connection.file_number is not None:
            _watchdog.watch(connection, connection.file_number, deadline)
        try:
            try:
                yield connection
            finally:
                _watchdog.unwatch(connection)
        except BaseException as error:
            is_broken = trouble_of(error, self._dialect) is Trouble.UNKNOWN
            self._give_back(connection, is_broken=is_broken)
            raise
        self._keep(connection)

    def _keep(self, connection: StoreConnection) -> None:
        now = time.monotonic()
        with self._changed:
            # Where threads wait, SQLAlchemy's pool hands it to one of them.
            surplus = [connection] if self._waiting else []
            if not surplus:
                self._idle.append((connection, now))
            if self._idle and self._idle[0][1] < now - _MAX_IDLE:
                surplus.append(self._idle.pop(0)[0])
        for each in surplus:
            self._give_back(each)

    def _give_back(self, connection: StoreConnection, *, is_broken: bool = False) -> None:
        if not is_broken and not connection.is_closed_by_server():
            try:
                connection.sqlalchemy.close()
                return
            except Exception as error:  # noqa: BLE001 - the operation has succeeded
                _logger.debug("A connection could not be given back: %s", type(error).__name__)
        self._broken_at = time.monotonic()
        _discard(connection.sqlalchemy)

    def _find(self, deadline: float) -> StoreConnection:
        while True:
            with self._changed:
                if len(self._idle) <= self._waiting:  # those who wait have the first right
                    attempt = self._admit(deadline)
                    break
                idle, _ = self._idle.pop()
            if not idle.is_closed_by_server():
                return idle
            _discard(idle.sqlalchemy)
        try:
            run = partial(self._open_for, attempt, self._idle)
            if not start_daemon(run, "flask-idempotence-connecting"):
                problem = "The process cannot start a thread to connect in."
                self._fail(attempt, PoolTimeout(problem))
            return self._wait(deadline)
        finally:  # also by a time limit of a task queue, which a signal raises here
            with self._changed:
                self._waiting -= 1
                del self._errors[self._waiting :]

    def _admit(self, deadline: float) -> object:
        """Begin an attempt to connect; refuse it where too many are overdue."""
        now = time.monotonic()
        overdue = sum(now - _LOST_AFTER < at <= now for at in self._connecting.values())
        if overdue >= _MOST_OVERDUE:
            if now < self._probe_at or overdue >= _MOST_OVERDUE + _MOST_PROBES:
                raise PoolTimeout("The database does not answer.")
            self._probe_at = now + _PROBE_EVERY
        attempt = object()
        self._connecting[attempt] = deadline
        self._waiting += 1
        return attempt

    def _wait(self, deadline: float) -> StoreConnection:
        with self._changed:
            left = deadline - time.monotonic()
            self._changed.wait_for(lambda: self._idle or self._errors, left)
            if self._idle:
                return self._idle.pop()[0]
            if self._errors:
                raise self._errors.pop()
            self._probe_at = time.monotonic() + _PROBE_EVERY
            raise PoolTimeout("Connecting took too long.")

    def _open_for(self, attempt: object, home: list[tuple[StoreConnection, float]]) -> None:
        try:
            connection = StoreConnection(self._engine.connect(), self._compiled)
        except BaseException as error:  # noqa: BLE001 - raised in a thread that waits
            self._fail(attempt, error)
            return
        with self._changed:
            self._connecting.pop(attempt, None)
            is_kept = self._waiting > 0 or home is self._idle
            if is_kept:
                self._idle.append((connection, time.monotonic()))
                self._changed.notify_all()
        if not is_kept:  # the pool was closed, or belongs to a child process
            _discard(connection.sqlalchemy)

    def _fail(self, attempt: object, error: BaseException) -> None:
        with self._changed:
            self._connecting.pop(attempt, None)
            now = time.monotonic()
            # Who took another one's connection has left its own attempt to those who wait.
            if self._waiting > sum(at > now for at in self._connecting.values()):
                self._errors.append(error)
                self._changed.notify_all()

    def _check(self, connection: DBAPIConnection, info: Info) -> None:
        """Have SQLAlchemy's pool replace a connection that is closed, or may be.

        Once one has been found broken, those that are older may be, too.
        """
        now = time.monotonic()
        opened_at = info.setdefault(_OPENED_AT, now)
        number = socket_of(connection)
        is_closed = opened_at < now and number is not None and has_input(number)()
        if is_closed or opened_at < self._broken_at:
            raise DisconnectionError

    def _prepare(self, connection: DBAPIConnection, info: Info) -> None:
        # A listener of the application may have left its SET in a transaction. Outside of one,
        # pg8000 sends a COMMIT in several packets, which PgBouncer may pass on to several servers.
        if getattr(connection, "_in_transaction", True):
            connection.commit()
        # For as long as it lasts. An execution option would be set and taken back at each use,
        # on MySQL by round trips, and the driver's errors in them are not SQLAlchemy's.
        self._engine.dialect.set_isolation_level(connection, "AUTOCOMMIT")
        self._dialect.prepare(connection, self._seconds, info)


class Watchdog:
    """One daemon thread that shuts down the sockets of overdue operations.

    The server's own time-outs help only while it runs: where it is frozen, or the network is gone,
    a driver waits for ever. It finds the connection broken when its socket is shut down.
    """

    def __init__(self) -> None:
        self._begin()
        call_in_children(self._begin)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._watched: dict[object, tuple[float, int]] = {}  # deadline and socket
        self._wake_at = float("inf")
        self._is_running = False

    def watch(self, operation: object, file_number: int, deadline: float) -> None:
        """Shut a socket down at a deadline, unless `unwatch` is called before; call it anyway."""
        with self._changed:
            self._watched[operation] = (deadline, file_number)
            is_running, self._is_running = self._is_running, True
            if deadline < self._wake_at:
                self._changed.notify()
        if not is_running and not start_daemon(self._run, "flask-idempotence-sql"):
            self._is_running = False  # out of threads: the next operation tries again

    def unwatch(self, operation: object) -> None:
        """End an operation, before its socket's number can be another connection's."""
        with self._changed:
            self._watched.pop(operation, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                overdue = [each for each, (at, _) in self._watched.items() if at <= now]
                while overdue:  # the thread holds no connection while it waits
                    file_number = self._watched.pop(overdue.pop())[1]
                    with suppress(OSError), socket.socket(fileno=os.dup(file_number)) as theirs:
                        theirs.shutdown(socket.SHUT_RDWR)
                deadlines = (at for at, _ in self._watched.values())
                self._wake_at = min(deadlines, default=now + 3600)
                self._changed.wait(self._wake_at - now)


_watchdog = Watchdog()


def twin_of(engine: Engine) -> Engine:
    """Return an engine that connects as another one does, with a pool of its own."""
    return Engine(engine.pool.recreate(), engine.dialect, engine.url, hide_parameters=True)


def _discard(connection: Connection) -> None:
    # Its pool may be closed by now, and would keep a returned connection open.
    if not connection.closed:  # as SQLAlchemy 2.1 leaves one whose end has failed
        connection.invalidate()
        connection.close()
