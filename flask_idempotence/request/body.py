"""A request's body: kept when a guard reads it, so that the view reads it as if no guard had.

The server's input is watched, too: it shows where a body broke off, whichever code reads it.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, partialmethod
from itertools import chain
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any

from flask import Flask, Request, Response, after_this_request
from werkzeug.exceptions import (
    ClientDisconnected,
    HTTPException,
    LengthRequired,
    RequestEntityTooLarge,
    ServiceUnavailable,
)
from werkzeug.wsgi import LimitedStream, get_content_length

from ..errors import ConfigurationError
from .proxies import current_request

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

FORM = "application/x-www-form-urlencoded"

IN_MEMORY = 1 << 20
"""Bytes of the longest body that is kept in memory; a longer one is kept in a temporary file.

A guard that only observes reads no longer one.
"""

PIECE = 1 << 16
"""Bytes that are read at a time."""

KEPT = "flask_idempotence.body"
"""Where the environment has the body that a guard has read whole."""

WATCHED = "flask_idempotence.input"
"""Where it has the watched input of the server, which the application may replace by its own."""

OBSERVED = "flask_idempotence.observed"
"""Where it has a function in place of `_read`, while a guard asks that only observes."""

_CODED = {"gzip": b"\x1f\x8b", "x-gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
"""The first bytes of a body that is still coded (RFC 1952, RFC 8878)."""

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


class WatchedInput(Input):
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

    def __init__(self, environ: WSGIEnvironment) -> None:
        length, is_terminated = get_content_length(environ), environ.get("wsgi.input_terminated")
        coding = (
            environ.get("HTTP_CONTENT_ENCODING", "identity").rpartition(",")[2].strip().lower()
        )
        is_coded = is_terminated and coding != "identity"
        self._mark = _CODED.get(coding) if is_coded else b""
        self.length = None if is_coded else length  # of what may have been decoded
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
            if not isinstance(error, OSError | ValueError | HTTPException):
                _logger.warning(
                    "Flask-Idempotence: the body of a request cannot be read (%s).",
                    type(error).__name__,
                )
            raise ClientDisconnected from None
        if data and not self.is_begun and _is_decoded(data, self._mark):
            self._left = 0
        self._left -= len(data)
        self.is_begun = self.is_begun or bool(data)
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


def watch_input(_: Flask, **__: object) -> None:
    """Watch the body of a request, if it has one; receives the signal `request_started`.

    From the beginning, since the application may read it before a guard does.
    """
    environ = current_request().environ
    has_body = (environ.get("CONTENT_LENGTH") or "0") != "0" or "HTTP_TRANSFER_ENCODING" in environ
    if has_body and environ.get(KEPT) is None:
        environ["wsgi.input"] = environ[WATCHED] = WatchedInput(environ)


def guard_input(environ: WSGIEnvironment) -> None:
    """Let every reader of a body raise where it breaks off, from now on."""
    if kept_body(environ) is not None:
        return
    watched = environ.get(WATCHED)
    if watched is None:
        watched = environ["wsgi.input"] = environ[WATCHED] = WatchedInput(environ)
    watched.is_guarded = True
    check_whole(environ)


def check_whole(environ: WSGIEnvironment) -> None:
    """Raise where a body has broken off already, which the application has read."""
    if kept_body(environ) is None and WATCHED in environ and environ[WATCHED].is_broken:
        raise ClientDisconnected


@dataclass(eq=False, repr=False, slots=True)
class Body:
    """The bytes of a body, in a file from which the view reads them."""

    stream: IO[bytes]
    size: int
    data: bytes | None
    """None where the bytes are in a temporary file."""
    is_rest: bool = False
    """Whether the application has read a part before, or all, and not kept it."""


def body_of(request: Request) -> Body:
    """Return the body of a request, which the view can still read, under its own limits."""
    if (body := kept_body(request.environ)) is None:
        if data := vars(request).get("_cached_data"):  # the application keeps what it has read
            return in_memory(data)
        body = _read_and_keep(request)
    if body.is_rest:
        raise ConfigurationError(
            f"The body of a request to {request.endpoint!r} was read before its guard. Read "
            "it with request.get_data(), which keeps it (or give a lock a key=)."
        )
    return body


def read_whole(request: Request) -> None:
    """Read as much of a body as no code has read yet, so that none of it can be missing later."""
    known = vars(request)
    is_parsed = known.get("_cached_data") or known.get("form") or known.get("files")
    if not is_parsed and kept_body(request.environ) is None:
        _read_and_keep(request)


def was_parsed(request: Request) -> bool:
    """Whether the application has parsed the form before a guard kept the body."""
    known = vars(request)
    kept = kept_body(request.environ)
    is_kept = known.get("_cached_data") or (kept is not None and not kept.is_rest)
    return "form" in known and not is_kept


def is_left_unparsed(request: Request) -> bool:
    """Whether Werkzeug found no form in a body that the application parsed as one."""
    _check_known(request.environ, length := get_content_length(request.environ))
    if request.form or request.files:
        return False
    if request.mimetype == FORM:
        if length:  # bytes that are no text
            raise ClientDisconnected
        return False
    return _read_and_keep(request).size > 0


def digest_of(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    with rewound(stream):
        while piece := stream.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


@contextmanager
def rewound(stream: IO[bytes]) -> Iterator[None]:
    position = stream.tell()
    stream.seek(0)
    try:
        yield
    finally:
        stream.seek(position)


def kept_body(environ: WSGIEnvironment) -> Body | None:
    body: Body | None = environ.get(KEPT)
    return body if body and body.stream is environ["wsgi.input"] else None


def _check_known(environ: WSGIEnvironment, length: int | None) -> None:
    # Werkzeug reads a body without an end as an empty one, so that all of them would look alike.
    if length is not None or environ.get("wsgi.input_terminated"):
        return
    has_frames = environ.get("SERVER_PROTOCOL", "").startswith(("HTTP/2", "HTTP/3"))
    if environ.get("HTTP_TRANSFER_ENCODING") or (has_frames and environ.get("CONTENT_TYPE")):
        raise LengthRequired(
            "The request has a body without a Content-Length, and this server does not pass such "
            "a body on. Send the request again with a Content-Length."
        )


def _read_and_keep(request: Request) -> Body:
    """Read the body, and put a file of it in the place of the server's."""
    environ, known = request.environ, vars(request)
    source, limit = known.get("stream") or environ["wsgi.input"], request.max_content_length
    watched: Any = environ.get(WATCHED)
    if watched is not None and source is watched.server:  # it was not watched from the beginning
        source = watched
    is_watched = source is watched
    length = watched.length if is_watched else get_content_length(environ)
    _check_known(environ, length)
    if length is not None and limit is not None and length > limit:
        raise RequestEntityTooLarge
    is_altered = not (is_watched or isinstance(source, LimitedStream | io.BytesIO))
    if is_altered:  # by the application, such as decompressed: it has another length
        length = None
    is_begun = watched is not None and watched.is_begun
    observed: Callable[..., Body] | None = environ.get(OBSERVED)
    body = (observed or _read)(source, length, limit)
    body.is_rest = is_begun and (is_watched or isinstance(source, LimitedStream))
    environ["wsgi.input"] = body.stream
    environ[KEPT] = body
    if "stream" in known:
        known["stream"] = body.stream
        body.is_rest |= body.size < (is_altered if length is None else length)
    return body


def _read(source: IO[bytes], length: int | None, limit: int | None) -> Body:
    data = source.read(PIECE)
    more = b"" if len(data) == length else source.read(PIECE)
    if not more and (limit is None or len(data) <= limit):
        return in_memory(data)
    file, size = KeptFile(IN_MEMORY), 0
    try:
        for piece in chain((data, more), iter(partial(source.read, PIECE), b"")):
            size += file.write(piece)
            if limit is not None and size > limit:
                raise RequestEntityTooLarge
        file.seek(0)
    except OSError as error:
        _logger.error(
            "Flask-Idempotence: a body cannot be kept in the temporary directory (%s). Make room "
            "there, name another one in TMPDIR, or set MAX_CONTENT_LENGTH.",
            error.strerror,
        )
        raise ServiceUnavailable(
            "The server has no room for the body of this request right now. Try again soon.",
            retry_after=1,
        ) from error
    if size <= IN_MEMORY:
        return in_memory(file.read())

    @after_this_request
    def close(response: Response) -> Response:
        response.call_on_close(file.close)  # a streamed response may still read it
        return response

    return Body(file, size, None)


def read_at_most(source: IO[bytes] | Input, most: int) -> tuple[bytes, Exception | None]:
    data = bytearray()
    try:
        while len(data) < most and (piece := source.read(min(PIECE, most - len(data)))):
            data += piece
    except Exception as error:  # noqa: BLE001 - which the view gets, where it reads so far
        return bytes(data), error
    return bytes(data), None


def _is_decoded(data: bytes, mark: bytes | None) -> bool:
    """Whether a middleware has decoded a body, whose declared length is that of the coded one.

    A coding without a mark is left to its decoder, which raises where the body has broken off.
    """
    return mark is None or not mark.startswith(data[: len(mark)])


def in_memory(data: bytes) -> Body:
    return Body(io.BytesIO(data), len(data), data)


class KeptFile(SpooledTemporaryFile[bytes]):
    """A temporary file that may be dropped: not every body is whole, or response closed."""

    def close(self) -> None:
        with suppress(OSError):
            super().close()

    def __del__(self) -> None:
        self.close()
