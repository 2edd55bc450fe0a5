"""Connections of the store's own, each lent and given up on within a deadline."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from weakref import WeakSet

from sqlalchemy import Engine, NullPool, QueuePool, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ..process import call_in_children, start_daemon
from .dialect import Dialect, Info, StoreConnection, Trouble, trouble_of

_AT_ONCE = 4  # attempts to connect that may run at a time, without the slow ones
_SLOW = 0.5  # after this share of the deadline an attempt is slow: another may overtake it
_MOST = 32  # attempts that may run at a time, the slow ones included
_LOOK_EVERY = 0.1  # seconds after which a waiting caller looks for room for an attempt
_LOST_AFTER = 150.0  # seconds after which an attempt does not count: a driver may wait for ever
_MAX_IDLE = 60.0  # seconds after which a connection is closed: a firewall may have forgotten it

# Seconds after which a caller that waits comes before those that have only now come. If every
# connection were handed over, each operation would cost a change of threads.
_FAIR_AFTER = 0.02


class Ask:
    """A caller that waits for a connection.

    Attributes:
        since: when its wait began.
        look: set when it has been served, or an idle connection may be there for it.
        served: the connection that it has got, or the error of its attempt to connect.
    """

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.look = threading.Event()
        self.served: StoreConnection | BaseException | None = None


class ConnectionPool:
    """Lends connections within a deadline, and keeps the idle ones.

    A helper thread looks up the host and connects, since no driver limits all of that. The caller
    takes the first connection that is free: this one, or one that another caller gives back. An
    attempt that outlasts its caller continues and serves the next one: else a first host that does
    not answer would hide the second.

    The application's engine is neither used nor altered. The connections are made as it makes
    them, as many as its pool allows. They are not kept in a pool of SQLAlchemy's, where a helper
    would wait while it is full, and where giving back is a ROLLBACK without a deadline.
    """

    def __init__(
        self, engine: Engine, dialect: Dialect, seconds: float, on_late: Callable[[], None]
    ) -> None:
        self._engine = twin_of(engine)
        self._on_late = on_late  # the database answers again
        event.listen(self._engine, "connect", lambda made, of: self._prepare(made, of.info))
        # SQLAlchemy's kinds of pools have no limit, but for one.
        pool, self._most = engine.pool, math.inf
        if isinstance(pool, QueuePool) and pool.size() and pool._max_overflow >= 0:  # noqa: SLF001
            self._most = pool.size() + pool._max_overflow  # noqa: SLF001
        self._dialect = dialect
        self._seconds = seconds
        self._of_parents: list[StoreConnection] = []
        self._begin()
        call_in_children(self._forget)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._open: WeakSet[StoreConnection] = WeakSet()  # idle or lent
        self._idle: list[StoreConnection] = []
        self._waiting: list[Ask] = []  # the longest wait first
        self._attempts: dict[Ask, float] = {}  # to connect, by helpers: since when

    def _forget(self) -> None:
        # Closing a parent's connection would look to the server as if the parent had closed it.
        self._of_parents += self._open
        self._begin()

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they come back."""
        with self._lock:
            idle, self._idle, self._open = self._idle, [], WeakSet()
        for each in idle:
            _close(each)

    @contextmanager
    def connection(self, deadline: float) -> Iterator[StoreConnection]:
        """Lend a connection to a block, and shut its socket down at the end of the deadline."""
        connection = self._take_idle() or self._wait(deadline)
        connection.deadline = deadline
        if connection.file_number is not None:
            _timer.begin(connection, connection.file_number, deadline)
        try:
            yield connection
        except BaseException as error:
            if trouble_of(error, self._dialect) is Trouble.UNKNOWN:
                self._drop(connection)
            raise
        finally:
            _timer.end(connection)
            self._give_back(connection)

    def _take_idle(self) -> StoreConnection | None:
        oldest = time.monotonic() - _MAX_IDLE
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.idle_since >= oldest and not connection.has_input():
                return connection
            self._open.discard(connection)
            _close(connection)

    def _wait(self, deadline: float) -> StoreConnection:
        ask = Ask()
        try:
            with self._lock:
                self._waiting.append(ask)
            while not self._is_served(ask) and (left := deadline - time.monotonic()) > 0:
                self._connect_for_those_who_wait()
                ask.look.wait(min(left, _LOOK_EVERY))
                ask.look.clear()
            self._leave(ask)
            if isinstance(ask.served, StoreConnection):
                return ask.served
            raise ask.served or PoolTimeout("No connection was free in time.")
        except BaseException:
            # It may be a time limit of a task queue, which a signal raises anywhere in this block.
            self._leave(ask)
            if isinstance(ask.served, StoreConnection):
                self._give_back(ask.served)
            raise
        finally:
            del ask  # it holds an error, whose traceback holds this frame

    def _is_served(self, ask: Ask) -> bool:
        """Give a caller an idle connection if it has none; return whether it has been served."""
        with self._lock:
            if self._idle and ask in self._waiting:
                self._serve(ask, self._idle.pop())
            self._call_next()
            return ask.served is not None

    def _leave(self, ask: Ask) -> None:
        with self._lock:
            if ask in self._waiting:
                self._waiting.remove(ask)
            self._call_next()

    def _serve(self, ask: Ask, served: StoreConnection | BaseException) -> None:
        self._waiting.remove(ask)
        ask.served = served
        ask.look.set()

    def _call_next(self) -> None:
        """Have the caller that waits the longest take an idle connection, if there is one."""
        if self._idle and self._waiting:
            self._waiting[0].look.set()

    def _connect_for_those_who_wait(self) -> None:
        """Begin an attempt for each caller that has none, as far as there is room."""
        while (ask := self._next_attempt()) is not None:
            run = partial(self._connect, ask, self._open)
            if not start_daemon(run, "flask-idempotence-connecting"):
                problem = "The process cannot start a thread to connect in."
                self._fail(ask, PoolTimeout(problem))

    def _next_attempt(self) -> Ask | None:
        now = time.monotonic()
        with self._lock:
            ages = [now - began for began in self._attempts.values()]
            fast = sum(age < self._seconds * _SLOW for age in ages)
            has_room = fast < _AT_ONCE and len(self._open) + fast < self._most
            if not has_room or sum(age < _LOST_AFTER for age in ages) >= _MOST:
                return None
            ask = next((each for each in self._waiting if each not in self._attempts), None)
            if ask is not None:
                self._attempts[ask] = now
            return ask

    def _connect(self, ask: Ask, others: WeakSet[StoreConnection]) -> None:
        """Open a connection in a helper thread; `others` are the pool's as the attempt begins."""
        try:
            connection = StoreConnection(self._engine.connect())
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            self._fail(ask, error)
            return
        with self._lock:
            self._attempts.pop(ask, None)
            is_late = ask not in self._waiting
            # Most: slow attempts have taken the room. Others: the pool was closed meanwhile.
            if len(self._open) < self._most and (others is self._open or not is_late):
                self._open.add(connection)
        if is_late:
            self._on_late()
        self._give_back(connection, ask)
        self._connect_for_those_who_wait()

    def _fail(self, ask: Ask, error: BaseException) -> None:
        with self._lock:
            self._attempts.pop(ask, None)
            if ask in self._waiting:
                self._serve(ask, error)
        self._connect_for_those_who_wait()

    def _give_back(self, connection: StoreConnection, ask: Ask | None = None) -> None:
        """Keep a connection, if it is the pool's; hand it to a caller that has waited for long."""
        now, surplus = time.monotonic(), connection
        with self._lock:
            if connection in self._open:
                long_ago = now - _FAIR_AFTER
                first = [each for each in self._waiting[:1] if each.since <= long_ago]
                if ask in self._waiting or first:
                    self._serve(ask if ask in self._waiting else first[0], connection)
                    return
                connection.idle_since = now
                self._idle.append(connection)
                self._call_next()
                if self._idle[0].idle_since >= now - _MAX_IDLE:
                    return
                surplus = self._idle.pop(0)
                self._open.discard(surplus)
        _close(surplus)

    def _drop(self, connection: StoreConnection) -> None:
        """Close a connection that is broken, and the idle ones, which may be, too."""
        with self._lock:
            dropped, self._idle = [*self._idle, connection], []
            self._open.difference_update(dropped)
        for each in dropped:
            _close(each)
        self._connect_for_those_who_wait()

    def _prepare(self, connection: DBAPIConnection, info: Info) -> None:
        # A listener of the application may have left its SET in a transaction. Outside of one,
        # pg8000 sends a COMMIT in several packets, which PgBouncer may pass on to several servers.
        if getattr(connection, "_in_transaction", True):
            connection.commit()
        # It lasts as long as the connection. An execution option would be set and taken back at
        # each use, on MySQL by round trips, and the driver's errors in them are not SQLAlchemy's.
        self._engine.dialect.set_isolation_level(connection, "AUTOCOMMIT")
        self._dialect.prepare(connection, self._seconds, info)


class SocketTimer:
    """One daemon thread that shuts down the sockets of overdue operations.

    The server's own time-outs help only while it runs: where it is frozen, or the network is gone,
    a driver waits for ever. It finds the connection broken when its socket is shut down.
    """

    def __init__(self) -> None:
        self._begin()
        call_in_children(self._begin)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._sockets: dict[object, tuple[float, int]] = {}  # deadline and socket
        self._wake_at = float("inf")
        self._is_running = False

    def begin(self, operation: object, file_number: int, deadline: float) -> None:
        """Shut a socket down at a deadline, unless `end` is called before; call it anyway."""
        with self._changed:
            self._sockets[operation] = (deadline, file_number)
            is_running, self._is_running = self._is_running, True
            if deadline < self._wake_at:
                self._changed.notify()
        if not is_running and not start_daemon(self._run, "flask-idempotence-sql"):
            self._is_running = False  # out of threads: the next operation tries again

    def end(self, operation: object) -> None:
        """End an operation, before its socket's number can be another connection's."""
        with self._changed:
            self._sockets.pop(operation, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                overdue = [each for each, (at, _) in self._sockets.items() if at <= now]
                while overdue:  # the thread holds no connection while it waits
                    file_number = self._sockets.pop(overdue.pop())[1]
                    with suppress(OSError), socket.socket(fileno=os.dup(file_number)) as theirs:
                        theirs.shutdown(socket.SHUT_RDWR)
                deadlines = (at for at, _ in self._sockets.values())
                self._wake_at = min(deadlines, default=now + 3600)
                self._changed.wait(self._wake_at - now)


_timer = SocketTimer()


def twin_of(engine: Engine) -> Engine:
    """Return an engine that connects as another one does, and keeps no connection."""
    pool = NullPool(
        engine.pool._creator,  # noqa: SLF001 - only a pool of the same kind has a public way
        dialect=engine.dialect,
        reset_on_return=None,
        _dispatch=engine.pool.dispatch,
    )
    return Engine(pool, engine.dialect, engine.url, hide_parameters=True)


def _close(connection: StoreConnection) -> None:
    """Close a connection, and its socket's second number once its timer has ended."""
    if not connection.sqlalchemy.closed:
        connection.sqlalchemy.invalidate()
        connection.sqlalchemy.close()
    _timer.end(connection)
    connection.release()
