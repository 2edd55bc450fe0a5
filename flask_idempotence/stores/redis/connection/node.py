"""One server: its idle connections, and its circuit breaker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from redis.exceptions import BusyLoadingError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ...process import start_daemon
from .breaker import CircuitBreaker, CircuitOpenError
from .wire import Command, Connection, Reply, deadline, pack

Address = tuple[str, int]

_MIN_SAMPLE = 0.05
"""Seconds. A shorter time-out does not count as a failure of the server."""

_FAIR_SHARE = 0.5
"""Of the deadline: a reply that has not come within it says something about other connections."""

_WAIT_MARGIN = 0.15
"""Seconds by which WAIT may end late: the server checks its time-outs ten times a second."""

_BRIEFLY = 0.02
"""Seconds for the reply to a WAIT behind a command that wrote nothing, or while replicas fail."""

_LATE = 10.0
"""Seconds for a connection that no caller waits for any longer."""

_MOST_LATE = 3
"""Such connections to one server at a time."""

_MOST_WAITING = 100
"""Connections to one server that are kept for a late reply to WAIT; further ones are closed."""

_THREAD = "flask-idempotence-redis"


class Quorum(NamedTuple):
    """How many replicas must have a command's write, and which replies say that it wrote."""

    replicas: int
    written: tuple[int, ...]


class Node:
    """Sends commands to one server.

    `connect` makes a connection that is ready to be used. `host` is that of a cluster's node.
    """

    def __init__(self, connect: Callable[[], Connection], host: str = "") -> None:
        self._connect = connect
        self.host = host
        self.failed_at: float = 0.0  # on the monotonic clock
        self.forget()

    def forget(self) -> None:
        """Drop all connections without closing them: in a child process they are the parent's."""
        self._idle: list[Connection] = []
        self._waiting: list[Connection] = []  # for the reply to a WAIT that no caller waits for
        self._breaker = CircuitBreaker()
        self._replicas_breaker = CircuitBreaker()
        self._answered = 0.0  # when the last operation began that was answered
        self._late = threading.BoundedSemaphore(_MOST_LATE)

    def drop_idle(self) -> None:
        """Close the connections, and those in use when they come back."""
        idle, self._idle = self._idle, []
        waiting, self._waiting = self._waiting, []
        for dropped in (idle, waiting):
            while dropped:
                dropped.pop().disconnect()

    def take(self, *, check: bool = True) -> tuple[Connection, list[Connection]]:
        """Return a connection, idle or new, and the list that it belongs to.

        Args:
            check: whether to pass over idle connections that the server has closed.
        """
        # An urgent renewal is sent anyway: the lease may end before the next probe.
        breaker, idle = self._breaker, self._idle
        if breaker.failures and not deadline.is_exempt and not breaker.allows():
            raise CircuitOpenError(
                f"The circuit breaker is open: {breaker.failures} time-outs in a row."
            )
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread was faster
                break
            if not check or not connection.has_input():  # the end of the stream is input, too
                return connection, idle
            connection.disconnect()
        if self._waiting and (waited := self._take_answered()) is not None:
            return waited, idle
        started = time.monotonic()
        try:
            return self._connect(), self._idle
        except BaseException as error:
            self._note_failure(error, started)
            if time.monotonic() - started >= _MIN_SAMPLE and not deadline.is_late:
                self._connect_late()
            raise

    def _take_answered(self) -> Connection | None:
        """Return a connection whose reply to WAIT has come in the meantime."""
        waiting = self._waiting
        for _ in range(len(waiting)):
            try:
                connection = waiting.pop(0)
            except IndexError:  # other threads were faster
                return None
            if not connection.has_input():
                waiting.append(connection)
                continue
            try:
                count = connection.receive()
            except (RedisError, OSError):
                count = None
            # A server that is no primary any more sends an error, and closes the connection.
            if isinstance(count, int) and connection.is_clean and not connection.has_input():
                return connection
            connection.disconnect()
        return None

    def _connect_late(self) -> None:
        """Connect in a thread: later operations have a connection where this takes too long."""
        late = self._late
        if late.acquire(blocking=False) and not start_daemon(partial(self._keep, late), _THREAD):
            late.release()

    def _keep(self, late: threading.Semaphore) -> None:
        deadline.begin_late(_LATE)
        try:
            connection = self._connect()
            self._idle.append(connection)  # the list of now: sentinels may have led to a new one
            self._breaker.record_success()
        except (RedisError, OSError):
            pass  # the next operation reports it
        finally:
            late.release()

    def put_back(self, connection: Connection, home: list[Connection]) -> None:
        """Keep a connection for the next operation, or close it if its list was dropped."""
        if home is self._idle or home is self._waiting:
            home.append(connection)
        else:
            connection.disconnect()

    def exchange(
        self, commands: Sequence[Command], quorum: Quorum | None = None, *, check: bool = True
    ) -> list[Reply]:
        """Send commands in one round trip and return their replies; a quorum adds one.

        Without `check` an idle connection may be used that the server has closed.

        Raises:
            RedisError, OSError: no connection, or the effect of the commands is unknown.
        """
        connection, home = self.take(check=check)
        started = time.monotonic()
        try:
            # On the same connection: WAIT is about its own connection's writes.
            has_time = quorum is not None and self._replicas_breaker.allows()
            sent = commands if quorum is None else [*commands, _wait(quorum, has_time=has_time)]
            connection.send(b"".join(sent))
            replies = [connection.receive() for _ in commands]
            if quorum is not None:
                has_time = has_time and replies[-1] in quorum.written
                replies.append(self._acknowledged(connection, quorum, has_time=has_time))
                if replies[-1] is None:  # it will still come, before the reply to the next command
                    is_kept = home is self._idle and len(self._waiting) < _MOST_WAITING
                    home = self._waiting if is_kept else []
                    replies[-1] = 0
            if not connection.is_clean:  # the next command would misread it
                home = []
        except BaseException as error:
            connection.disconnect()  # a part of the replies may still come
            self._note_failure(error, started)
            if isinstance(error, RedisTimeoutError) and _is_silent(started):
                self.drop_idle()  # likewise
            if not isinstance(error, BusyLoadingError):  # which refuses everything
                deadline.may_have_arrived = True
            raise
        self._breaker.failures = 0
        self._answered = started
        self.put_back(connection, home)
        return replies

    def _acknowledged(self, connection: Connection, quorum: Quorum, *, has_time: bool) -> Reply:
        """Return the reply to WAIT; None if it has not come yet."""
        count = connection.receive() if has_time else _receive_briefly(connection)
        # WAIT waits for all writes on this server: it counts behind a command that made none, too.
        if isinstance(count, int) and count >= quorum.replicas:
            self._replicas_breaker.record_success()
        elif has_time:
            self._replicas_breaker.record_failure()
        return count

    def ask(self, *command: str | bytes | int) -> Reply:
        """Send a command of our own before the operation; an error reply is raised."""
        before = deadline.may_have_arrived
        try:
            [reply] = self.exchange([pack(*command)])
        finally:
            deadline.may_have_arrived = before
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _note_failure(self, error: BaseException, started: float) -> None:
        self.failed_at = now = time.monotonic()
        took = now - started
        if isinstance(error, RedisTimeoutError):
            # Three urgent renewals would soon open the circuit. An operation that began before
            # one that was answered says nothing about the server now.
            if took >= _MIN_SAMPLE and not deadline.is_exempt and started > self._answered:
                self._breaker.record_failure()
        elif isinstance(error, RedisError | OSError) and not isinstance(error, CircuitOpenError):
            self._breaker.record_success()  # it refuses: that costs no time
            self.drop_idle()  # the others may be dead, too


def _is_silent(started: float) -> bool:
    """Whether it had a fair share of the deadline: connecting may have taken the most of it."""
    return time.monotonic() - started >= deadline.length * _FAIR_SHARE


def _wait(quorum: Quorum, *, has_time: bool = True) -> Command:
    left = deadline.left() if has_time else min(deadline.left(), _BRIEFLY)
    patience = max(left - _WAIT_MARGIN, left / 2)
    return pack("WAIT", quorum.replicas, max(1, int(patience * 1000)))


def _receive_briefly(connection: Connection) -> Reply:
    try:
        with deadline.limit(_BRIEFLY):
            return connection.receive()
    except RedisTimeoutError:
        return None
