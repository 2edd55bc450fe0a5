"""One server: the idle connections to it, and whether it has fallen silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .connections import Command, Reply, pack, read
from .deadline import deadline

Address = tuple[str, int]

SILENCES = 3
"""After so many operations in a row that got no answer in time, the server is left alone."""

PROBE_EVERY = 0.5
"""Seconds between two operations that look whether a silent server answers again."""

HEARING = 0.05
"""Seconds. An operation that had less time left for the server says nothing about it."""

_WAIT_SHARE = 0.8
"""How much of the time that is left WAIT may take; the rest is for its answer to come back."""

_IN_VAIN = 0.02
"""Seconds that are spent on the answer to a WAIT behind a command that has written nothing."""


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
        self.failed_at = 0.0
        self.forget()

    def forget(self) -> None:
        """Forget the connections: in a child process they are the parent's."""
        # Two processes on one connection would read each other's answers.
        self._idle: list[Any] = []
        self._silences = 0
        self._probe_at = 0.0
        self._probing = threading.Lock()

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
        if self._silences >= SILENCES:
            self._probe_or_fail()
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
            patience = int(deadline.left() * 1000 * _WAIT_SHARE)
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
        self._silences = 0
        if connection.home is self._idle:
            self._idle.append(connection)
        else:
            connection.disconnect()
        return replies

    @staticmethod
    def _acknowledged(connection: Any, quorum: Quorum, reply: Reply) -> Reply:
        if reply in quorum.written:
            return read(connection)
        # WAIT waits for all that the server wrote before, for others, too: not our business.
        try:
            with deadline.within(_IN_VAIN):
                return read(connection)
        except RedisTimeoutError:
            connection.home = None  # its answer may still come: this connection is done with
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
        now = time.monotonic()
        self.failed_at = now
        if isinstance(error, RedisTimeoutError):
            if now - started >= HEARING:
                self._silences += 1
                self._probe_at = now + PROBE_EVERY
        elif isinstance(error, RedisError | OSError):
            # It refuses, which is no silence: that costs nothing, and is better asked again soon.
            self._silences = 0

    def _probe_or_fail(self) -> None:
        with self._probing:
            wait = self._probe_at - time.monotonic()
            if wait <= 0:
                # The others wait for what comes of this one.
                self._probe_at = deadline.at + PROBE_EVERY
                return
        raise RedisConnectionError(
            f"The server was silent {self._silences} times in a row; it is not asked for now."
        )
