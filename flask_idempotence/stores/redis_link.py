"""Sending commands to Redis within one deadline, over connections of our own.

The connections are made like those of the application's client, but they are not the client's:
its retries, timeouts and decoding do not apply here, and it is not altered.
"""

from __future__ import annotations

import functools
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from ..errors import ConfigurationError, StoreError
from ..forks import call_in_children

Command = tuple[str | bytes | int, ...]
Reply = Any

_ATTEMPTS = 2
"""How often a repeatable command is sent at most: an idle connection may have been closed by the
server long ago, and the first command on it is how one finds out."""

_BOUND_TO_A_POOL = ("maint_notifications", "orig_", "event_dispatcher", "himport_")
"""Connection arguments that newer releases of redis-py add for the pool they belong to."""


class _Deadline(threading.local):
    at: float = float("inf")

    def left(self) -> float:
        left = self.at - time.monotonic()
        if left <= 0:
            raise RedisTimeoutError("The deadline has passed.")
        return left


_deadline = _Deadline()


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
        self._make = _connections_like(pool)
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
            _deadline.at = time.monotonic() + self.deadline
        sent = False
        while True:
            attempts -= 1
            try:
                connection = self._take()
                sent = True
                return self._send_over(connection, commands)
            except (RedisConnectionError, RedisTimeoutError, OSError) as error:
                if not attempts or time.monotonic() >= _deadline.at:
                    raise StoreError(f"{type(error).__name__}: {error}", sent=sent) from error
            except RedisError as error:  # refused in the handshake: credentials, no such database
                raise StoreError(f"{type(error).__name__}: {error}", sent=sent) from error

    def _send_over(self, connection: Any, commands: Sequence[Command]) -> list[Reply]:
        try:
            connection.send_packed_command([b"".join(map(_pack, commands))], check_health=False)
            replies = [_read(connection) for _ in commands]
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


def _watch_input(connected: Any) -> Callable[[], Any]:
    """Return what says, without waiting, whether a socket has something to read."""
    if hasattr(select, "poll"):
        poller = select.poll()
        poller.register(connected, select.POLLIN)
        return functools.partial(poller.poll, 0)
    # Not on every platform, and some libraries for cooperative threads take it away.
    return lambda: select.select([connected], [], [], 0)[0]


def _pack(command: Command) -> bytes:
    parts = [b"*%d\r\n" % len(command)]
    for word in command:
        data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def _read(connection: Any) -> Reply:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def _connections_like(pool: ConnectionPool) -> Callable[[], Any]:
    """Return what makes connections like a pool's, but within our deadline and without retries."""
    settings = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if not name.startswith(_BOUND_TO_A_POOL)
    }
    settings.update(
        decode_responses=False,
        encoding="utf-8",
        health_check_interval=0,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        retry_on_timeout=False,
        **_no_maintenance_notifications(),
    )
    return functools.partial(_deadlined(pool.connection_class), **settings)


def _no_maintenance_notifications() -> dict[str, Any]:
    # They relax a connection's timeouts while the server is being moved; the deadline is ours.
    try:
        from redis.maint_notifications import MaintNotificationsConfig  # noqa: PLC0415 - new
    except ImportError:
        return {}
    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}


@functools.cache
def _deadlined(connection_class: Any) -> Any:
    """Return a kind of connection whose every wait ends at the calling thread's deadline."""

    class DeadlinedConnection(connection_class):  # type: ignore[misc]  # the base is given
        def _connect(self) -> Any:
            left = _deadline.left()
            self.socket_connect_timeout = left / 2  # a name may have a second address
            self.socket_timeout = left
            connected = super()._connect()
            self.has_input = _watch_input(connected)
            return _DeadlinedSocket(connected)

    return DeadlinedConnection


class _DeadlinedSocket:
    """A socket whose every wait ends at the calling thread's deadline.

    A time-out of the socket's own would begin anew with each byte that a slow server sends.
    """

    def __init__(self, connected: Any) -> None:
        self._connected = connected

    def sendall(self, data: bytes) -> None:
        self._connected.settimeout(_deadline.left())
        self._connected.sendall(data)

    def recv(self, *arguments: Any) -> Any:
        self._connected.settimeout(_deadline.left())
        return self._connected.recv(*arguments)

    def recv_into(self, *arguments: Any) -> Any:
        self._connected.settimeout(_deadline.left())
        return self._connected.recv_into(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected, name)
