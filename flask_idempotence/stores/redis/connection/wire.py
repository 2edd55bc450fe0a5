"""The bytes of a round trip: commands sent at once, as many replies read, within the deadline.

One deadline holds for all that an operation does: connect, send, wait, follow a redirection.
"""

from __future__ import annotations

import functools
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

try:
    import hiredis
except ImportError:  # it is optional, for redis-py as well
    hiredis = None  # type: ignore[assignment, unused-ignore]  # used only where it is installed

Command = bytes
"""A command in Redis' protocol: see `pack`."""

Reply = Any
"""A number, bytes, None or a list of replies; an error reply is a `ResponseError`."""

_FIRST_READ = 4096
"""Bytes: the replies to most commands, but for records."""

_LATER_READ = 65536

_AT_ONCE = 4096
"""Bytes that a connection without unanswered commands takes without waiting."""

_END = b"\r\n"
_NUMBER, _STRING, _BULK, _ARRAY, _ERROR, _PUSH = b":+$*->"
_INCOMPLETE = object()


class Deadline(threading.local):
    """The deadline of the calling thread's operation, in seconds of the monotonic clock."""

    at: float = float("inf")
    length: float = float("inf")
    """Seconds that the operation may take in all."""
    is_exempt: bool = False
    """Whether circuit breakers neither stop nor count it: it has less time than usual, or more."""
    is_late: bool = False
    """Whether no caller waits for it."""
    may_have_arrived: bool = False
    """Whether an earlier attempt was sent and its effect is unknown."""
    _cap: float = float("inf")

    def begin(self, seconds: float) -> None:
        """Begin an operation that may take this many seconds in all."""
        self.length = min(seconds, self._cap)
        self.at = time.monotonic() + self.length
        self.is_exempt = self._cap < seconds
        self.is_late = self.may_have_arrived = False

    def begin_late(self, seconds: float) -> None:
        """Begin what no caller waits for."""
        self.begin(seconds)
        self.is_exempt = self.is_late = True

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


def pack(*words: str | bytes | int) -> Command:
    """Return a command in Redis' protocol."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def fill(template: bytes, key: str, *arguments: bytes) -> Command:
    """Return a command from a template, which takes the size and the bytes of each word."""
    name = key.encode("utf-8", "surrogateescape")
    words: list[int | bytes] = [len(name), name]
    for argument in arguments:
        words += (len(argument), argument)
    return template % tuple(words)


class Connection:
    """A connection after its handshake. Every wait ends at the deadline of the calling thread.

    Attributes:
        disconnect: closes it.
        has_input: whether there is something to read, without waiting: the end of the stream, too.

    Args:
        connected: the socket.
        disconnect: closes the socket.
        parse_error: returns the text of an error reply as an exception.
        unread: bytes that the socket has received behind the replies of the handshake.
    """

    def __init__(
        self,
        connected: socket.socket,
        disconnect: Callable[[], None],
        parse_error: Callable[[str], RedisError],
        unread: bytes = b"",
    ) -> None:
        self.disconnect = disconnect
        self.has_input = _input_check(connected)
        self._socket = connected
        self._parse_error = parse_error
        self._deadline_set = 0.0  # for the socket's next wait
        self._data, self._at = unread, 0

    def send(self, data: bytes) -> None:
        """Send commands in one piece.

        Raises:
            RedisTimeoutError, RedisConnectionError: the server may have received any part of it.
        """
        try:
            self._socket.settimeout(deadline.left())
            self._socket.sendall(data)
        except TimeoutError as error:
            raise RedisTimeoutError("The server takes no data.") from error
        except OSError as error:
            raise RedisConnectionError(f"Cannot send to the server: {error}") from error
        # One time-out is enough for sending and for the first wait, if sending took no time.
        self._deadline_set = deadline.at if len(data) <= _AT_ONCE else 0.0

    def receive(self) -> Reply:
        """Read one reply; an error reply is returned. Messages that the server pushes are skipped.

        Raises:
            RedisTimeoutError: the deadline has passed.
            RedisConnectionError: the connection has ended, or the server refuses all commands.
            InvalidResponse: this is not Redis' protocol.
        """
        data, at = self._data, self._at
        end = data.find(_END, at)
        while end < 0:
            data, at = data[at:] + self._wait(), 0
            self._data, self._at = data, 0  # if the rest does not come in time
            end = data.find(_END)
        kind, text = data[at], data[at + 1 : end]
        self._data, self._at = data, end + 2
        if kind == _NUMBER:
            return int(text)
        if kind == _BULK:
            return self._bulk(int(text))
        if kind == _ERROR:
            return self._error(text)
        if kind == _ARRAY:
            return self._array(int(text))
        if kind == _STRING:
            return text
        if kind == _PUSH:
            self._array(int(text))
            return self.receive()
        return self._in_resp3(chr(kind), text)

    def _in_resp3(self, kind: str, text: bytes) -> Reply:
        """Return a reply of a kind that only a client of RESP3 gets."""
        match kind:
            case "_":
                return None
            case "#":
                return text == b"t"
            case ",":
                return float(text)
            case "(":
                return int(text)
            case "%":
                pairs = range(int(text))
                return {self.receive(): self.receive() for _ in pairs}
            case "~":
                return self._array(int(text))
            case "=":
                return self._bulk(int(text))[4:]  # behind its format, such as "txt:"
            case "!":
                return self._error(self._bulk(int(text)))
        raise InvalidResponse(f"Not a reply in Redis' protocol: {kind}{text!r}")

    def _array(self, size: int) -> Reply:
        return None if size < 0 else [self.receive() for _ in range(size)]

    def _bulk(self, size: int) -> Reply:
        if size < 0:
            return None
        missing = self._at + size + 2 - len(self._data)
        if missing > 0:
            chunks = [self._data[self._at :]]
            while missing > 0:
                chunks.append(self._wait())
                missing -= len(chunks[-1])
            self._data, self._at = b"".join(chunks), 0
        start = self._at
        self._at += size + 2
        return self._data[start : start + size]

    def _error(self, text: bytes) -> RedisError:
        error = self._parse_error(text.decode("utf-8", "replace"))
        if isinstance(error, RedisConnectionError):  # it is loading, or has too many clients
            raise error
        return error

    def _wait(self) -> bytes:
        """Wait for bytes."""
        size = _FIRST_READ
        try:
            if self._deadline_set != deadline.at:
                self._socket.settimeout(deadline.left())
                size = _LATER_READ
            data = self._socket.recv(size)
        except TimeoutError as error:
            raise RedisTimeoutError("The server does not answer in time.") from error
        except OSError as error:
            raise RedisConnectionError(f"Cannot read from the server: {error}") from error
        if not data:
            raise RedisConnectionError("The server has closed the connection.")
        self._deadline_set = 0.0
        return data

    @property
    def is_clean(self) -> bool:
        """Whether nothing was received behind the replies that have been read."""
        return self._at == len(self._data)


class HiredisConnection(Connection):
    """A connection whose replies are parsed by the library hiredis."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=self._parse_error,
            notEnoughData=_INCOMPLETE,
        )
        self._reader.feed(self._data)

    def receive(self) -> Reply:
        """Read one reply, as `Connection.receive` does."""
        reply = self._reader.gets()
        while reply is _INCOMPLETE or isinstance(reply, hiredis.PushNotification):
            if reply is _INCOMPLETE:
                self._reader.feed(self._wait())
            reply = self._reader.gets()
        if isinstance(reply, RedisConnectionError):
            raise reply
        return reply

    @property
    def is_clean(self) -> bool:
        """Whether nothing was received behind the replies that have been read."""
        return not self._reader.has_data()


def connection_class() -> type[Connection]:
    """Return the quickest class of connections that there is."""
    # An old one would return a message that the server pushes as if it were a reply.
    return HiredisConnection if hasattr(hiredis, "PushNotification") else Connection


def _input_check(connected: socket.socket) -> Callable[[], object]:
    if hasattr(select, "poll"):
        poller = select.poll()
        poller.register(connected, select.POLLIN)
        return functools.partial(poller.poll, 0)
    # Some platforms lack poll, and gevent removes it.
    return lambda: select.select([connected], [], [], 0)[0]
