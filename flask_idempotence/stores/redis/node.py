"""One server: its idle connections, and its circuit breakers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..process import CircuitBreaker
from .deadlines import deadline
from .link import Command, Link, Reply, pack

Address = tuple[str, int]

_MIN_SAMPLE = 0.05  # seconds; a shorter time-out does not count as a failure of the server
_FAIR_SHARE = 0.5  # after this share of the deadline, a missing reply tells of other connections
_WAIT_MARGIN = 0.15  # seconds by which WAIT may end late: the server looks ten times a second

# A server that sends one of these has not carried out any command of a connection.
_REFUSE_ALL = (AuthenticationError, BusyLoadingError)


class CircuitOpenError(RedisConnectionError):
    """The circuit is open: the server has not been asked."""


class NotReplicatedError(ResponseError):
    """In place of the reply to a write that too few replicas have in time."""


class Quorum(NamedTuple):
    """How many replicas must have a command's write, and which replies say that it wrote."""

    replicas: int
    written: tuple[int, ...]


class Node:
    """Sends commands to one server; `host` is that of a cluster's node."""

    def __init__(self, connect: Callable[..., Link], host: str = "") -> None:
        self.connect = connect
        self.host = host
        self.failed_at: float = 0.0  # the monotonic clock has measured it
        self._breaker = CircuitBreaker()
        self._replicas_breaker = CircuitBreaker()
        self.forget()

    def forget(self) -> None:
        """Drop all connections without closing them: in a child process they are the parent's."""
        self._idle: list[Link] = []

    def drop_idle(self) -> None:
        """Close the connections, and those in use when they come back."""
        idle, self._idle = self._idle, []
        while idle:
            idle.pop().disconnect()

    def take(self) -> tuple[Link, list[Link]]:
        """Return a connection, idle or new, and the list that it belongs to.

        Idle ones that the server has closed are passed over: a command over one certainly does
        not arrive, but fails as if it might have.
        """
        # An urgent renewal is sent anyway: the lease may end before the next probe.
        breaker, idle = self._breaker, self._idle
        if breaker.timeouts and not deadline.now.is_short and not breaker.allows(deadline.at):
            raise CircuitOpenError(
                f"The circuit breaker is open: {breaker.timeouts} time-outs in a row."
            )
        while idle:
            try:
                connection = idle.pop()
            except IndexError:  # another thread was faster
                break
            if not connection.over.has_input():  # the end is input, too
                return connection, idle
            connection.disconnect()
        started = time.monotonic()
        try:
            # It belongs to the list of now: sentinels may have led to a new primary.
            return self.connect(), self._idle
        except BaseException as error:
            self._count_failure(error, started)
            raise

    def put_back(self, connection: Link, home: list[Link]) -> None:
        """Keep a connection for the next operation, or close it if its list was dropped."""
        # More input than replies were due: the next command would misread it.
        if home is self._idle and not connection.over.unread:
            home.append(connection)
        else:
            connection.disconnect()

    def exchange(self, commands: Sequence[Command], quorum: Quorum | None = None) -> list[Reply]:
        """Send commands in one round trip and return their replies.

        If the last one wrote, a second trip waits for the replicas that a quorum demands.
        """
        connection, home = self.take()
        started = time.monotonic()
        try:
            replies = connection.exchange(b"".join(commands), len(commands))
            if quorum is not None and replies[-1] in quorum.written:
                problem = self._wait_for_replicas(connection, quorum.replicas)
                replies[-1] = problem or replies[-1]
        except BaseException as error:
            connection.disconnect()  # a part of the replies may still come
            self._count_failure(error, started)
            has_waited = time.monotonic() - started >= deadline.now.length * _FAIR_SHARE
            if isinstance(error, RedisTimeoutError) and has_waited:
                self.drop_idle()  # they may be slow, too, unless connecting took most of the time
            if not isinstance(error, _REFUSE_ALL):
                deadline.update(may_have_arrived=True)
            raise
        self._breaker.count(started, timed_out=False)
        self.put_back(connection, home)
        return replies

    def _wait_for_replicas(self, connection: Link, wanted: int) -> NotReplicatedError | None:
        """Wait until replicas have the last write of a connection, or fail at once as they did."""
        breaker, count = self._replicas_breaker, 0
        if breaker.allows(deadline.at):
            started, left = time.monotonic(), deadline.left()
            patience = max(left - _WAIT_MARGIN, left / 2)
            wait = pack("WAIT", wanted, max(1, int(patience * 1000)))
            [count] = connection.exchange(wait, 1)
            are_enough = isinstance(count, int) and count >= wanted
            breaker.count(started, timed_out=not are_enough)
            if are_enough:
                return None
            if not isinstance(count, int):  # a server that is demoted closes its connections
                self.drop_idle()
        return NotReplicatedError(f"The write has reached {count} replicas in time, not {wanted}.")

    def _count_failure(self, error: BaseException, started: float) -> None:
        self.failed_at = now = time.monotonic()
        took = now - started
        if isinstance(error, CircuitOpenError):
            return
        if isinstance(error, RedisTimeoutError) or now >= deadline.at:
            # Three urgent renewals would soon open the circuit.
            if took >= _MIN_SAMPLE and not deadline.now.is_short:
                self._breaker.count(started, timed_out=True)
        elif isinstance(error, RedisError | OSError):
            self._breaker.count(started, timed_out=False)  # it refuses: that costs no time
            self.drop_idle()  # the others may be dead, too
