"""Sending commands to Redis within one deadline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import ConnectionPool, Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import SentinelConnectionPool

from ...errors import ConfigurationError, StoreError
from ...forks import call_in_children
from .connections import Command, Reply, connections_like, pack, read
from .deadline import deadline

_ATTEMPTS = 2
"""How often a repeatable command is sent at most: an idle connection may have been closed by the
server long ago, and the first command on it is how one finds out."""


class Link:
    """Sends commands and returns their replies, each call within one deadline.

    Args:
        client: a `redis.Redis`; its connection settings are copied.
        deadline: seconds for a call in all, connecting included. (The look-up of a host name is
            the operating system's and not bounded by it.)

    Raises:
        ConfigurationError: the client is of a kind that is not supported, or its connection
            settings cannot be used.
    """

    def __init__(self, client: Redis, *, deadline: float) -> None:
        pool = getattr(client, "connection_pool", None)
        if not isinstance(client, Redis) or not isinstance(pool, ConnectionPool):
            raise ConfigurationError(
                f"A redis.Redis client is needed, not {type(client).__module__}."
                f"{type(client).__qualname__}."
            )
        if isinstance(pool, SentinelConnectionPool):
            raise ConfigurationError("Clients of Redis Sentinel are not supported yet.")
        self.deadline = deadline
        self._make = connections_like(pool)
        self._forget()
        call_in_children(self._forget)
        try:
            self._make()
        except TypeError as error:
            raise ConfigurationError(f"An option of the connection to Redis: {error}") from None
        except (ValueError, RedisError) as error:
            raise ConfigurationError(
                f"The connection to Redis cannot be set up ({type(error).__name__})."
            ) from None

    def send(
        self, commands: Sequence[Command], *, repeatable: bool, goes_on: bool = False
    ) -> list[Reply]:
        """Send commands in one round trip and return their replies.

        Args:
            commands: each a tuple of its words.
            repeatable: whether the commands may be sent again where it is unknown if they arrived.
            goes_on: whether this is still the operation of this thread's last call, so that the
                deadline of that one holds.

        Returns:
            A reply each; an error reply is returned, not raised.

        Raises:
            StoreError: no answer within the deadline.
        """
        attempts = _ATTEMPTS if repeatable else 1
        if not goes_on:
            deadline.begin(self.deadline)
        sent = False
        while True:
            attempts -= 1
            try:
                connection = self._take()
                sent = True
                return self._send_over(connection, commands)
            except (RedisConnectionError, RedisTimeoutError, OSError) as error:
                if not attempts or deadline.is_over:
                    raise StoreError(f"{type(error).__name__}: {error}", sent=sent) from error
            except RedisError as error:  # refused in the handshake: credentials, no such database
                raise StoreError(f"{type(error).__name__}: {error}", sent=sent) from error

    def _send_over(self, connection: Any, commands: Sequence[Command]) -> list[Reply]:
        try:
            connection.send_packed_command([b"".join(map(pack, commands))], check_health=False)
            replies = [read(connection) for _ in commands]
        except BaseException:
            connection.disconnect()  # part of an answer may still be on its way
            raise
        self._idle.append(connection)
        return replies

    def _take(self) -> Any:
        # Not the pool's way, which costs as much as the rest of the client does.
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._make()
                connection.connect()
                return connection
            if not _is_stale(connection):
                return connection
            connection.disconnect()

    def _forget(self) -> None:
        # Never the parent's connections: two processes would read each other's answers.
        self._idle: list[Any] = []


def _is_stale(connection: Any) -> bool:
    # An idle connection has nothing to read, unless the server has closed it.
    return bool(connection.has_input())
