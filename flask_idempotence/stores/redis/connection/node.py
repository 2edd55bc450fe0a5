"""One server: the idle connections to it, and whether it has fallen silent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .connections import Command, Reply, pack, read
from .deadline import deadline
from .patience import Patience

Address = tuple[str, int]

HEARING = 0.05
"""Seconds. An operation that had less time left for the server says nothing about it."""

_LATE = 0.15
"""Seconds by which the end of a WAIT may come late: the server looks ten times a second."""

_BRIEFLY = 0.02
"""Seconds for the answer to a WAIT of which little is to be hoped: behind a command that has
written nothing, or where replicas have been missing for a while."""


class Quorum(NamedTuple):
    """How many replicas must have what a command wrote.

    Attributes:
        replicas: so many.
        written: the replies that say that it wrote something.
    """

    replicas: int
    written: tuple[Reply, ...]


class Node:
    """Sends commands to one server.

    A server that takes connections and answers nothing would cost every request the whole
    deadline. After a few such operations in a row no more are sent, but for one at a time that
    looks whether it answers again; the others fail at once.

    Args:
        connect: makes a connection that is ready to be used, within the deadline.

    Attributes:
        failed_at: when it last failed, on the monotonic clock.
    """

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self.failed_at: float = 0.0
        self.forget()

    def forget(self) -> None:
        """Forget the connections: in a child process they are the parent's."""
        # Two processes on one connection would read each other's answers.
        self._idle: list[Any] = []
        self._answers = Patience()
        self._answered = 0.0  # when the last operation began that was answered
        self._replicas = Patience()

    def drop_idle(self) -> None:
        """Close the connections, and those in use when they come back."""
        idle, self._idle = self._idle, []
        while idle:
            idle.pop().disconnect()

    def take(self) -> Any:
        """Return a connection: an idle one, or a new one.

        Raises:
            RedisError, OSError: none could be made, or the server has fallen silent.
        """
        # A renewal in haste is sent all the same: the lease may be over before its turn has come.
        if self._answers.failures and not deadline.is_short and not self._answers.has_turn():
            raise RedisConnectionError(
                f"The server was silent {self._answers.failures} times in a row; it is left alone."
            )
        # Not the pool's way, which costs as much as the rest of the client does.
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._new()
            # An idle connection has nothing to read, unless the server has closed it.
            if not connection.has_input():
                return connection
            connection.disconnect()

    def _new(self) -> Any:
        started = time.monotonic()
        try:
            connection = self._connect()
        except BaseException as error:
            self._note_failure(error, started)
            raise
        connection.home = self._idle
        return connection

    def exchange(
        self, connection: Any, commands: Sequence[Command], quorum: Quorum | None = None
    ) -> list[Reply]:
        """Send commands in one round trip and return their replies.

        Args:
            connection: as taken; it comes back by itself.
            commands: each a tuple of its words.
            quorum: how many replicas must have what the last command wrote: one reply more says
                how many have it, after waiting for them within the deadline.

        Raises:
            RedisError, OSError: it is unknown what the server has done.
        """
        started = time.monotonic()
        packed = [pack(command) for command in commands]
        if quorum is not None:
            # On this connection and no other: WAIT is about what its own connection wrote.
            left = deadline.left()
            patience = int(max(left - _LATE, left / 2) * 1000)
            packed.append(pack(("WAIT", quorum.replicas, max(1, patience))))
        try:
            connection.send_packed_command([b"".join(packed)], check_health=False)
            replies = [read(connection) for _ in commands]
            if quorum is not None:
                replies.append(self._acknowledged(connection, quorum, replies[-1]))
        except BaseException as error:
            connection.disconnect()  # part of an answer may still be on its way
            self._note_failure(error, started)
            raise
        self._answers.failures = 0
        self._answered = started
        if connection.home is self._idle:
            self._idle.append(connection)
        else:
            connection.disconnect()
        return replies

    def _acknowledged(self, connection: Any, quorum: Quorum, reply: Reply) -> Reply:
        if reply not in quorum.written:
            # WAIT waits for all that the server wrote before, for others, too: not our business.
            return self._read_briefly(connection)
        patient = self._replicas.has_turn()
        count = read(connection) if patient else self._read_briefly(connection)
        if isinstance(count, int) and count >= quorum.replicas:
            self._replicas.succeeded()
        elif patient:
            self._replicas.failed()
        return count

    @staticmethod
    def _read_briefly(connection: Any) -> Reply:
        try:
            with deadline.within(_BRIEFLY):
                return read(connection)
        except RedisTimeoutError:
            connection.home = None  # the answer may still come: this connection is done with
            return 0

    def ask(self, *command: str | bytes | int) -> Reply:
        """Send one command and return its reply.

        Raises:
            RedisError, OSError: there is none, or it is an error.
        """
        reply = self.exchange(self.take(), [command])[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _note_failure(self, error: BaseException, started: float) -> None:
        self.failed_at = now = time.monotonic()
        if isinstance(error, RedisTimeoutError):
            # A renewal in haste is tried again at once: three of them are soon in vain. And what
            # began before something that was answered tells of a silence that is over.
            if now - started >= HEARING and not deadline.is_short and started > self._answered:
                self._answers.failed()
        elif isinstance(error, RedisError | OSError):
            # It refuses, which is no silence: that costs nothing, and is better asked again soon.
            self._answers.succeeded()
