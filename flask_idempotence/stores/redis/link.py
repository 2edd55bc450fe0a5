"""Connections of redis-py whose every wait ends at the deadline of the calling thread."""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from redis import ConnectionPool, exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import SentinelManagedConnection

from ...errors import ConfigurationError, StoreError
from ..process import call_in_children, has_input
from .deadlines import deadline
from .names import Address, names

Command = bytes  # a command in Redis' protocol: see `pack`
Reply = Any  # a number, bytes, None or a list of replies; an error reply is a `ResponseError`

# So begin the settings that pools of redis-py add to connections for themselves. Without them
# there are no maintenance notifications either, which would relax the time-outs.
_POOLS_OWN = ("connection_pool", "maint_notifications", "orig_", "event_dispatcher", "himport_")

# Errors of redis-py and of this package over a reply that is no valid answer to its command.
MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)

_AT_ONCE = 4096  # bytes that a connection without unanswered commands takes without waiting

_Version = list[tuple[str, int, int, int]]

_BULK = b"$"[0]
_OTHER = object()

# redis-py cuts these codes off, and its classes have other names.
_CODES = {"CLUSTERCROSSSLOT": "CROSSSLOT", "NOPERMISSION": "NOPERM", "OUTOFMEMORY": "OOM"}

_REFUSED = {"ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH"}
_REFUSED |= {"NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "WRONGTYPE"}

# redis-py does not tell these errors in scripts apart for Redis 6.
_KINDS = {"OOM": exceptions.OutOfMemoryError, "READONLY": exceptions.ReadOnlyError}

# Redis 6 puts the place in the script before the error of a command in it.
_CODE = re.compile(r"(?:Error .*@user_script: ?\d+: -?)?([A-Z]+)\b")


def packed(*words: str | bytes | int) -> bytes:
    """Return words of a command in Redis' protocol."""
    parts = []
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def pack(*words: str | bytes | int, behind: tuple[bytes, int] = (b"", 0)) -> Command:
    """Return a command; `behind` are its first words, packed, and their number."""
    first, count = behind
    return b"*%d\r\n%b%b" % (count + len(words), first, packed(*words))


def error_code(reply: ResponseError) -> str:
    if type(reply) is not ResponseError:
        name = type(reply).__name__.removesuffix("Error").upper()
        return _CODES.get(name, name)
    found = _CODE.match(str(reply))
    return found[1] if found else ""


def failure(reply: ResponseError) -> StoreError:
    """Return an error reply as an error of the store.

    A refused command has had no effect. Neither has a script with a refused command in it: each
    of ours writes once and last.
    """
    code = error_code(reply)
    kind = _KINDS.get(code, type(reply))
    sent = deadline.now.may_have_arrived or code not in _REFUSED
    return StoreError(f"{kind.__name__}: {reply}", sent=sent)


def checked(reply: Reply) -> Reply:
    """Return a reply, or raise the `StoreError` of an error reply."""
    if isinstance(reply, StoreError):
        raise reply
    if isinstance(reply, ResponseError):
        raise failure(reply) from reply
    return reply


class DeadlinedSocket:
    """A socket whose every wait ends at the deadline of the calling thread.

    A time-out of the socket's own would restart with each byte that a slow server sends. redis-py
    gets one line at a time, so that its parser never holds more than the reply that it reads.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.unread = b""  # what came behind the replies that have been read
        self.has_input = has_input(connected.fileno())
        self._socket = connected
        self._deadline_set = 0.0  # the socket's next wait has it

    def sendall(self, data: bytes) -> None:
        self._socket.settimeout(deadline.left())
        if len(data) <= _AT_ONCE:
            self._socket.sendall(data)
            self._deadline_set = deadline.at  # the first wait has it, too
            return
        rest = memoryview(data)
        while rest := rest[
            self._socket.send(rest) :
        ]:  # sendall of TLS has a time-out for each part
            self._socket.settimeout(deadline.left())
        self._deadline_set = 0.0

    def recv(self, size: int) -> bytes:
        data = self.unread or self._wait()
        end = min(size, data.find(b"\n") + 1 or len(data))
        self.unread = data[end:]
        return data[:end]

    def recv_into(self, buffer: bytearray) -> int:  # hiredis calls it
        line = self.recv(len(buffer))
        buffer[: len(line)] = line
        return len(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def _wait(self) -> bytes:
        if self._deadline_set != deadline.at:
            self._socket.settimeout(deadline.left())
        self._deadline_set = 0.0
        data = self._socket.recv(65536)
        if not data:
            raise RedisConnectionError("Connection closed by server.")
        return data

    def number_or_bulk(self) -> Reply:
        """Read a number, a string or its absence; leave a reply of another kind to redis-py.

        Its parser takes longer for the replies to a claim than all that this package does.
        """
        data = self.unread
        while (end := data.find(b"\r\n")) < 0:
            data = self.unread = data + self._wait()
        if data[0] not in b":$":
            return _OTHER
        number, stop = int(data[1:end]), end + 2
        reply: Reply = number
        if data[0] == _BULK:
            reply = None
            if number >= 0:
                start, stop = stop, stop + number + 2
                if len(data) < stop:
                    buffer = bytearray(data)
                    while len(buffer) < stop:
                        buffer += self._wait()
                    data = bytes(buffer)
                reply = data[start : stop - 2]
        self.unread = data[stop:]
        return reply


class TlsContext:
    """The SSL context of all connections to one place, renewed when a certificate file changes.

    Making one takes some 40 ms, most of it to load the system's certificates: many threads that
    connect at once would spend their whole deadline on it.
    """

    def __init__(self) -> None:
        self._made: tuple[_Version | None, ssl.SSLContext | None] = (None, None)
        self._begin()
        call_in_children(self._begin)  # no thread of a child would release the lock

    def _begin(self) -> None:
        self._making = threading.Lock()

    def wrap(
        self,
        connection: object,
        wrap: Callable[[socket.socket], ssl.SSLSocket],
        plain: socket.socket,
    ) -> ssl.SSLSocket:
        """Return a socket with TLS around it, its handshake done; `wrap` is redis-py's way."""
        asks_authority = ("ssl_validate_ocsp", "ssl_validate_ocsp_stapled")
        if any(getattr(connection, name, False) for name in asks_authority):
            return wrap(plain)
        version = _version_of_files(connection)  # before the files are read
        if self._made[0] != version and self._making.acquire(timeout=deadline.left() / 4):
            try:
                if self._made[0] != version:
                    with socket.socket() as unconnected, wrap(unconnected) as wrapped:
                        self._made = (version, wrapped.context)
            finally:
                self._making.release()
        made, context = self._made
        if context is None or made != version:  # another thread is still making it
            return wrap(plain)
        plain.settimeout(deadline.left())
        return context.wrap_socket(plain, server_hostname=getattr(connection, "host", None))


def _version_of_files(connection: object) -> _Version:
    system = ssl.get_default_verify_paths()  # redis-py loads these in any case
    directory = getattr(connection, "ca_path", None)
    paths = [getattr(connection, name, None) for name in ("ca_certs", "certfile", "keyfile")]
    if directory:
        paths += [directory, *Path(os.fsdecode(directory)).glob("*")]
    version = []
    for path in filter(None, (*paths, system.cafile, system.capath)):
        with suppress(OSError):
            found = Path(os.fsdecode(path)).stat()
            version.append((os.fsdecode(path), found.st_ino, found.st_mtime_ns, found.st_size))
    return version


_Base: Any = object  # the connection class of the client's pool; `ConnectionFactory` adds it


class Link(_Base):  # type: ignore[misc]  # known at run time only
    """A connection of redis-py over a socket with a deadline.

    Overrides `_connect`, by which redis-py makes sockets.
    """

    tls: TlsContext
    has_address: bool  # it connects as redis-py does, and not to a socket file
    over: DeadlinedSocket

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # CLIENT SETINFO with the name and the version of redis-py would be two round trips.
        self.driver_info = self.lib_name = self.lib_version = None

    def _connect(self) -> DeadlinedSocket:
        self.socket_connect_timeout = self.socket_timeout = deadline.left()
        if self.has_address:
            connected = names.connect((self.host, self.port, self.socket_type), self._reach)
        else:
            connected = super()._connect()
        self.over = DeadlinedSocket(connected)
        return self.over

    def _reach(self, address: Address) -> socket.socket:
        plain = socket.socket(*address[:3])
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.socket_keepalive:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in self.socket_keepalive_options.items():
                    plain.setsockopt(socket.IPPROTO_TCP, name, value)
            plain.settimeout(deadline.left())
            plain.connect(address[4])
            plain.settimeout(deadline.left())
            if isinstance(self, SSLConnection):
                return self.tls.wrap(self, self._wrap_socket_with_ssl, plain)
        except BaseException:
            plain.close()
            raise
        return plain

    def exchange(self, data: bytes, count: int) -> list[Reply]:
        """Send commands in one piece and read so many replies; error replies are returned."""
        replies, over = [], self.over
        try:
            over.sendall(data)
            for _ in range(count):
                reply = over.number_or_bulk()
                if reply is _OTHER:
                    try:
                        reply = self.read_response()
                    except ResponseError as error:
                        reply = error
                replies.append(reply)
        except TimeoutError as error:
            raise RedisTimeoutError("The server does not answer in time.") from error
        except OSError as error:
            raise RedisConnectionError(f"The connection is lost: {error}") from error
        return replies


class ConnectionFactory:
    """Makes connections like those of a client's pool, with our deadline and without retries."""

    def __init__(self, pool: ConnectionPool, **changes: object) -> None:
        base = pool.connection_class
        if issubclass(base, SentinelManagedConnection):  # it asks sentinels in its own way
            base = SSLConnection if issubclass(base, SSLConnection) else Connection
        ways = (Connection._connect, SSLConnection._connect)  # noqa: SLF001 - the same as above
        parts = {"tls": TlsContext(), "has_address": base._connect in ways}  # noqa: SLF001
        self._class = type("DeadlinedConnection", (Link, base), parts)
        given = pool.connection_kwargs.items()
        self._settings = {n: v for n, v in given if not n.startswith(_POOLS_OWN)} | {
            "decode_responses": False,
            "encoding": "utf-8",
            "health_check_interval": 0,
            "protocol": 2,  # 3 begins with a round trip
            "retry": Retry(NoBackoff(), 0),
            "retry_on_error": [],
            "retry_on_timeout": False,
            **changes,
        }
        try:
            self.make()
        except TypeError as error:
            raise ConfigurationError(f"An option of the connection to Redis: {error}") from None
        except (ValueError, RedisError) as error:
            raise ConfigurationError(
                f"The connection to Redis cannot be set up ({type(error).__name__})."
            ) from None

    def make(self, **changes: str | int) -> Link:
        link: Link = self._class(**{**self._settings, **changes})
        return link

    def connect(self, **changes: str | int) -> Link:
        link = self.make(**changes)
        try:
            link.connect()
        except BaseException:
            link.disconnect()  # redis-py does so after errors of its own
            raise
        return link
