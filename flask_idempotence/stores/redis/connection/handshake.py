"""The handshake of a connection, which is redis-py's: TLS, credentials, database, name."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from .wire import Connection, connection_class, deadline


class _Tls(Protocol):
    def wrap(
        self,
        connection: object,
        wrap: Callable[[socket.socket], ssl.SSLSocket],
        plain: socket.socket,
    ) -> ssl.SSLSocket: ...


_Base: Any = object
"""Stands for the connection class of the client's pool, which `ConnectionFactory` adds."""


class Handshake(_Base):  # type: ignore[misc]  # known at run time only
    """A connection of redis-py whose every wait ends at the deadline of the calling thread.

    Overrides two private methods of redis-py: `_connect` and `_wrap_socket_with_ssl`.
    """

    tls: _Tls

    def connection(self) -> Connection:
        """Connect, and return the connection for commands."""
        # The name and version of redis-py would be two round trips.
        self.driver_info = self.lib_name = self.lib_version = None
        self.connect()
        taken: _DeadlinedSocket = self._sock
        parse_error = self._parser.parse_error
        return connection_class()(taken.connected, self.disconnect, parse_error, taken.unread)

    def _connect(self) -> _DeadlinedSocket:
        left = deadline.left()
        self.socket_connect_timeout = left / 2  # a name may have a second address
        self.socket_timeout = left
        return _DeadlinedSocket(super()._connect())

    def _wrap_socket_with_ssl(self, sock: socket.socket) -> socket.socket:
        return self.tls.wrap(self, super()._wrap_socket_with_ssl, sock)


class _DeadlinedSocket:
    """A socket whose every wait ends at the deadline of the calling thread.

    A time-out of the socket's own would restart with each byte that a slow server sends. It
    returns one line at a time, so that redis-py's parser never holds more than the reply it reads.

    Attributes:
        connected: the socket itself.
        unread: bytes that it has received and not returned yet.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.connected = connected
        self.unread = b""

    def sendall(self, data: bytes) -> None:
        self.connected.settimeout(deadline.left())
        self.connected.sendall(data)

    def recv(self, size: int) -> bytes:
        if not self.unread:
            self.connected.settimeout(deadline.left())
            self.unread = self.connected.recv(size)
        end = min(size, self.unread.find(b"\n") + 1 or len(self.unread))
        line, self.unread = self.unread[:end], self.unread[end:]
        return line

    def recv_into(self, buffer: bytearray) -> int:
        line = self.recv(len(buffer))
        buffer[: len(line)] = line
        return len(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.connected, name)
