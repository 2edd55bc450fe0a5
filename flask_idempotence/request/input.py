"""The server's input: it shows where a body broke off, whichever code reads it."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from functools import partialmethod
from typing import IO, TYPE_CHECKING, Any

from werkzeug.exceptions import ClientDisconnected, HTTPException
from werkzeug.wsgi import get_content_length

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

PIECE = 1 << 16  # bytes that are read at a time

# Where the environment has it; the application may have put an input of its own before it.
CHECKED = "flask_idempotence.input"

# The first bytes of a body that is still coded (RFC 1952, RFC 8878).
_CODED = {"gzip": b"\x1f\x8b", "x-gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}

_logger = logging.getLogger("flask_idempotence")


class Input:
    """An input of the server behind a `read` and a `readline`, by which all other ways read."""

    _stream: IO[bytes]

    def read(self, size: int | None = -1) -> bytes:
        raise NotImplementedError

    def readline(self, size: int | None = -1) -> bytes:
        raise NotImplementedError

    def read1(self, size: int | None = -1) -> bytes:
        return self.read(size)

    def readinto(self, buffer: bytearray | memoryview) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readlines(self, _: int | None = -1) -> list[bytes]:
        return list(self)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "read")) and name != "readable":  # a way around them
            raise AttributeError(name)
        return getattr(self._stream, name)


class CheckedInput(Input):
    """An input of the server. Behind a guard, it raises where the body has broken off.

    Some servers pass on the bytes before a disconnect as if they were the body, others raise
    errors of their own.

    Attributes:
        length: that of the body, as the request declares it; None for unknown.
        is_begun: whether a part of the body has been read.
        is_broken: whether the body has broken off, as far as it was read.
        is_guarded: whether to raise an error then, in place of what the server does.
        server: the input of the server itself.
    """

    length: int | None
    is_begun: bool
    is_broken: bool
    is_guarded: bool
    server: Any
    _stream: Any
    _mark: bytes | None

    def __init__(self, environ: WSGIEnvironment) -> None:
        length, is_terminated = get_content_length(environ), environ.get("wsgi.input_terminated")
        self.length, self._mark = length, b""
        if is_terminated and "HTTP_CONTENT_ENCODING" in environ:
            coding = environ["HTTP_CONTENT_ENCODING"].rpartition(",")[2].strip().lower()
            if coding != "identity":  # a middleware may have decoded it
                self.length, self._mark = None, _CODED.get(coding)
        self.is_begun = self.is_broken = self.is_guarded = False
        self.server = self._stream = environ["wsgi.input"]
        self._left = length or 0
        # Reading on, a server may wait for more.
        self._is_endless = not is_terminated and (
            length is not None or "HTTP_TRANSFER_ENCODING" not in environ
        )

    def read(self, size: int | None = -1) -> bytes:
        most = -1 if size is None else size
        data = self._take(self._stream.read, most)
        while self._left > 0 and not 0 <= most <= len(data):
            try:
                more = self._take(self._stream.read, most if most < 0 else most - len(data))
            except Exception as error:
                if self.is_guarded:
                    raise
                self._stream = Again(b"", self._stream, error)  # which the next read raises
                break
            if not more:
                self._break_off()
                break
            data += more
        return data

    def readline(self, size: int | None = -1) -> bytes:
        most = -1 if size is None else size
        line = self._take(self._stream.readline, most)
        if self._left > 0 and not line.endswith(b"\n") and not 0 <= most <= len(line):
            self._break_off()
        return line

    def read_ahead(self, most: int) -> tuple[bytes, Exception | None]:
        """Return as many of the next bytes, and an error in their place: they are read again."""
        before, self.is_guarded = vars(self).copy(), False
        data, error = read_at_most(self, most)
        is_short = error is None and self.is_broken
        vars(self).update(before)
        if data or error is not None:
            self._stream = Again(data, self._stream, error)
        return data, ClientDisconnected() if is_short else error

    def __getattr__(self, name: str) -> Any:
        if name == "seek":
            self._left, self._is_endless, self.is_begun = 0, False, False
        return super().__getattr__(name)

    def _take(self, read: Callable[..., bytes], most: int) -> bytes:
        if self._is_endless and not 0 <= most <= self._left:
            most = self._left
        if most == 0:
            return b""
        try:
            data = read() if most < 0 else read(most)
        except Exception as error:
            if isinstance(error, HTTPException) and not isinstance(error, ClientDisconnected):
                raise
            self.is_broken = True
            if not self.is_guarded:
                raise
            raise disconnected(error) from None
        if data and not self.is_begun:
            self.is_begun = True
            if self._mark != b"" and _is_decoded(data, self._mark):
                self._left = 0
        self._left -= len(data)
        return data

    def _break_off(self) -> None:
        self.is_broken = True
        if self.is_guarded:
            raise ClientDisconnected


class Again(Input):
    """An input of which the beginning was read: the beginning, its error if any, then the rest."""

    def __init__(self, beginning: bytes, stream: IO[bytes], error: Exception | None) -> None:
        self._beginning, self._stream, self._error = io.BytesIO(beginning), stream, error

    def _take(self, method: str, size: int | None = -1) -> bytes:
        size = -1 if size is None else size
        data: bytes = getattr(self._beginning, method)(size)
        if len(data) == size or (method == "readline" and data.endswith(b"\n")):
            return data
        if (error := self._error) is not None:
            if data and size > 0:
                return data
            self._error = None
            raise error
        rest: bytes = getattr(self._stream, method)(size if size < 0 else size - len(data))
        return data + rest

    read = partialmethod(_take, "read")
    readline = partialmethod(_take, "readline")

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return self._seek if name == "seek" else found

    def _seek(self, *where: int) -> int:
        position = self._stream.seek(*where)
        self._beginning, self._error = io.BytesIO(), None
        return position


def read_at_most(source: IO[bytes] | Input, most: int) -> tuple[bytes, Exception | None]:
    data = bytearray()
    try:
        while len(data) < most and (piece := source.read(min(PIECE, most - len(data)))):
            data += piece
    except Exception as error:  # noqa: BLE001 - which the view gets, where it reads so far
        return bytes(data), error
    return bytes(data), None


def disconnected(error: Exception) -> HTTPException:
    """Return what to raise behind a guard for the error of an input."""
    if isinstance(error, HTTPException):
        return error
    if not isinstance(error, OSError | ValueError):
        _logger.warning(
            "Flask-Idempotence: the body of a request cannot be read (%s).", type(error).__name__
        )
    return ClientDisconnected()


def _is_decoded(data: bytes, mark: bytes | None) -> bool:
    """Whether a middleware has decoded a body, whose declared length is that of the coded one.

    A coding without a mark is left to its decoder, which raises where the body has broken off.
    """
    return mark is None or not mark.startswith(data[: len(mark)])
