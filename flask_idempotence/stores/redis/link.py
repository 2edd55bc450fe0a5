"""Connections of redis-py whose every wait ends at the deadline of the calling thread."""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from redis import ConnectionPool, exceptions
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import SentinelManagedConnection

from ...errors import ConfigurationError, StoreError
from ..base import TimeLimit
from ..process import has_input

Command = bytes
"""A command in Redis' protocol: see `pack`."""

Reply = Any
"""A number, bytes, None or a list of replies; an error reply is a `ResponseError`."""

_POOLS_OWN = ("connection_pool", "maint_notifications", "orig_", "event_dispatcher", "himport_")
"""How the settings begin that pools of redis-py add to connections for themselves.

Without them there are no maintenance notifications either, which would relax the time-outs.
"""

_AT_ONCE = 4096
"""Bytes that a connection without unanswered commands takes without waiting."""

_Version = list[tuple[str, int, int, int]]

_BULK = b"$"[0]
_OTHER = object()

_CODES = {"CLUSTERCROSSSLOT": "CROSSSLOT", "NOPERMISSION": "NOPERM", "OUTOFMEMORY": "OOM"}
"""Those that the class of redis-py, which cuts them off, does not have for its name."""

_REFUSED = {"ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH"}
_REFUSED |= {"NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "WRONGTYPE"}

_KINDS = {"OOM": exceptions.OutOfMemoryError, "READONLY": exceptions.ReadOnlyError}
"""Classes of errors in scripts, which redis-py does not tell apart for Redis 6."""

# Redis 6 puts the place in the script before the error of a command in it.
_CODE = re.compile(r"(?:Error .*@user_script: ?\d+: -?)?([A-Z]+)\b")


class Operation(NamedTuple):
    """An operation under way; times are seconds, by the monotonic clock."""

    at: float = float("inf")  # when its time is over
    length: float = float("inf")  # its time in all
    is_short: bool = False  # it has less time than usual: breakers neither stop nor count it
    may_have_arrived: bool = False  # an earlier attempt was sent, and its effect is unknown


_NONE = Operation()


class Deadline(TimeLimit):
    """The deadline of the operation that the calling thread or greenlet is carrying out.

    It holds for all that an operation does: connect, send, wait, follow a redirection.
    """

    def __init__(self) -> None:
        super().__init__()
        self._operation = ContextVar("operation", default=_NONE)

    def begin(self, seconds: float) -> Token[Operation]:
        """Begin an operation; `end` takes the token."""
        length = min(seconds, self.cap)
        is_short = length < seconds
        return self._operation.set(Operation(time.monotonic() + length, length, is_short))

    def end(self, token: Token[Operation]) -> None:
        self._operation.reset(token)

    def update(self, **changes: Any) -> None:
        self._operation.set(self.now._replace(**changes))

    @property
    def now(self) -> Operation:
        return self._operation.get()

    @property
    def at(self) -> float:
        return self._operation.get().at

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Limit a part of the current operation; the rest of its time is for later parts."""
        whole = self.at
        self.update(at=min(whole, time.monotonic() + seconds))
        try:
            yield
        finally:
            self.update(at=whole)

    def left(self) -> float:
        """Return the remaining seconds, or raise RedisTimeoutError if there are none."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise RedisTimeoutError("The deadline has passed.")
        return left

    def pause(self, seconds: float) -> bool:
        """Sleep if there is time for it; with a stopped clock, the sleeps themselves end it."""
        began = time.monotonic()
        if began + seconds >= self.at:
            return False
        time.sleep(seconds)
        self.update(at=self.at - max(0.0, began + seconds - time.monotonic()))
        return True


deadline: Deadline = Deadline()


class _Timed(Protocol):
    _deadline: float


Timed = TypeVar("Timed", bound=_Timed)
P = ParamSpec("P")
T = TypeVar("T")


def operation(
    method: Callable[Concatenate[Timed, P], T],
) -> Callable[Concatenate[Timed, P], T]:
    """Make each call of a store's method an operation, which ends by its deadline."""

    @wraps(method)
    def timed(self: Timed, /, *arguments: P.args, **options: P.kwargs) -> T:
        token = deadline.begin(self._deadline)
        try:
            return method(self, *arguments, **options)
        finally:
            deadline.end(token)

    return timed


def pack(*words: str | bytes | int) -> Command:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


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
        self._deadline_set = 0.0  # for the socket's next wait

    def sendall(self, data: bytes) -> None:
        self._socket.settimeout(deadline.left())
        self._socket.sendall(data)
        # One time-out is enough for sending and for the first wait, if sending took no time.
        self._deadline_set = deadline.at if len(data) <= _AT_ONCE else 0.0

    def recv(self, size: int) -> bytes:
        data = self.unread or self._wait()
        end = min(size, data.find(b"\n") + 1 or len(data))
        self.unread = data[end:]
        return data[:end]

    def recv_into(self, buffer: bytearray) -> int:  # for hiredis
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
        self._making = threading.Lock()

    def wrap(
        self,
        connection: object,
        wrap: Callable[[socket.socket], ssl.SSLSocket],
        plain: socket.socket,
    ) -> ssl.SSLSocket:
        """Return a socket with TLS around it, its handshake done; `wrap` is redis-py's way."""
        names = ("ssl_validate_ocsp", "ssl_validate_ocsp_stapled")
        if any(getattr(connection, name, False) for name in names):
            return wrap(plain)  # which also asks the authority
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
        plain.settimeout(deadline.left())  # of the handshake
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


_Base: Any = object
"""Stands for the connection class of the client's pool, which `ConnectionFactory` adds."""


class Link(_Base):  # type: ignore[misc]  # known at run time only
    """A connection of redis-py over a socket with a deadline.

    Overrides two methods by which redis-py makes sockets: `_connect`, and `_wrap_socket_with_ssl`.
    """

    tls: TlsContext
    over: DeadlinedSocket

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # CLIENT SETINFO with the name and the version of redis-py would be two round trips.
        self.driver_info = self.lib_name = self.lib_version = None

    def _connect(self) -> DeadlinedSocket:
        left = deadline.left()
        self.socket_connect_timeout = left / 2  # a name may have a second address
        self.socket_timeout = left
        self.over = DeadlinedSocket(super()._connect())
        return self.over

    def _wrap_socket_with_ssl(self, sock: socket.socket) -> socket.socket:
        return self.tls.wrap(self, super()._wrap_socket_with_ssl, sock)

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
        if issubclass(base, SentinelManagedConnection):  # which asks sentinels in its own way
            base = SSLConnection if issubclass(base, SSLConnection) else Connection
        self._class = type("DeadlinedConnection", (Link, base), {"tls": TlsContext()})
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
        link.connect()
        return link
