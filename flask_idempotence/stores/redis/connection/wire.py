"""The bytes of a round trip: commands sent at once, as many replies read, within the deadline.

One deadline holds for all that an operation does: connect, send, wait, follow a redirection.
"""

from __future__ import annotations

import functools
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

Command = tuple[str | bytes | int, ...]
Reply = Any
"""A number, bytes, None or a list of replies; an error reply is a `ResponseError`."""


class Deadline(threading.local):
    """The deadline of the calling thread's operation, in seconds of the monotonic clock."""

    at: float = float("inf")
    is_short: bool = False
    """Whether the operation was allowed less time than usual."""
    may_have_arrived: bool = False
    """Whether an earlier attempt was sent and its effect is unknown."""
    _cap: float = float("inf")

    def begin(self, seconds: float) -> None:
        """Begin an operation that may take this many seconds in all."""
        self.at = time.monotonic() + min(seconds, self._cap)
        self.is_short = self._cap < seconds
        self.may_have_arrived = False

    @contextmanager
    def cap(self, seconds: float) -> Iterator[None]:
        """Cap each operation that begins in this block."""
        before, self._cap = self._cap, seconds
        try:
            yield
        finally:
            self._cap = before

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Limit a part of the current operation; the rest of its time is for later parts."""
        whole = self.at
        self.at = min(whole, time.monotonic() + seconds)
        try:
            yield
        finally:
            self.at = whole

    def left(self) -> float:
        """Return the remaining seconds.

        Raises:
            RedisTimeoutError: the deadline has passed.
        """
        left = self.at - time.monotonic()
        if left <= 0:
            raise RedisTimeoutError("The deadline has passed.")
        return left

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.at

    def pause(self, seconds: float) -> bool:
        """Sleep, if the deadline allows; return whether it did."""
        if time.monotonic() + seconds >= self.at:
            return False
        time.sleep(seconds)
        return True


deadline: Deadline = Deadline()


def pack(command: Command) -> bytes:
    """Return a command in Redis' protocol."""
    parts = [b"*%d\r\n" % len(command)]
    for word in command:
        data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class _Tls(Protocol):
    def wrap(
        self,
        connection: object,
        wrap: Callable[[socket.socket], ssl.SSLSocket],
        plain: socket.socket,
    ) -> ssl.SSLSocket: ...


_Base: Any = object
"""Stands for the connection class of the client's pool, which `ConnectionFactory` adds."""


class Connection(_Base):  # type: ignore[misc]  # known at run time only
    """A connection of redis-py whose every wait ends at the deadline of the calling thread.

    Overrides two private methods of redis-py: `_connect` and `_wrap_socket_with_ssl`.
    """

    tls: _Tls
    has_input: Callable[[], object]
    """Whether there is something to read, without waiting: the end of the stream, too."""

    def send(self, commands: Iterable[Command]) -> None:
        """Send commands in one piece."""
        self.send_packed_command([b"".join(map(pack, commands))], check_health=False)

    def receive(self) -> Reply:
        """Read one reply; an error reply is returned, not raised."""
        try:
            return self.read_response()
        except ResponseError as error:
            return error

    def _connect(self) -> _DeadlinedSocket:
        left = deadline.left()
        self.socket_connect_timeout = left / 2  # a name may have a second address
        self.socket_timeout = left
        connected = super()._connect()
        self.has_input = _input_check(connected)
        return _DeadlinedSocket(connected)

    def _wrap_socket_with_ssl(self, sock: socket.socket) -> socket.socket:
        return self.tls.wrap(self, super()._wrap_socket_with_ssl, sock)


class _DeadlinedSocket:
    """A socket whose every wait ends at the deadline of the calling thread.

    A time-out of the socket's own would begin anew with each byte that a slow server sends.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected

    def sendall(self, data: bytes) -> None:
        self._connected.settimeout(deadline.left())
        self._connected.sendall(data)

    def recv(self, size: int) -> bytes:
        self._connected.settimeout(deadline.left())
        return self._connected.recv(size)

    def recv_into(self, *arguments: Any) -> int:
        self._connected.settimeout(deadline.left())
        return self._connected.recv_into(*arguments)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connected, name)


def _input_check(connected: socket.socket) -> Callable[[], object]:
    if hasattr(select, "poll"):
        poller = select.poll()
        poller.register(connected, select.POLLIN)
        return functools.partial(poller.poll, 0)
    # Some platforms lack poll, and gevent removes it.
    return lambda: select.select([connected], [], [], 0)[0]
