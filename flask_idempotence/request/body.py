"""A request's body: a guard reads it so that the view reads it as if no guard had."""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any

from flask import Request, Response, after_this_request
from werkzeug.datastructures import iter_multi_items
from werkzeug.exceptions import (
    ClientDisconnected,
    HTTPException,
    LengthRequired,
    RequestEntityTooLarge,
    ServiceUnavailable,
)
from werkzeug.wsgi import LimitedStream, get_content_length

from ..errors import ConfigurationError
from .input import CHECKED, PIECE, Again, CheckedInput, disconnected, read_at_most
from .proxies import session_as_it_was

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

FORM = "application/x-www-form-urlencoded"

# Bytes of the longest body that is held in memory; a longer one is held in a temporary file.
# A guard that only observes reads no longer one.
IN_MEMORY = 1 << 20

WHOLE = "flask_idempotence.body"  # where the environment has the body that a guard has read whole

# Where it has a function in place of `_read`, while a guard asks that only observes.
OBSERVED = "flask_idempotence.observed"

_logger = logging.getLogger("flask_idempotence")


def check_input(environ: WSGIEnvironment) -> None:
    """Have the body of a request checked from now on, if it has one."""
    has_body = (environ.get("CONTENT_LENGTH") or "0") != "0" or "HTTP_TRANSFER_ENCODING" in environ
    if has_body and environ.get(WHOLE) is None:
        environ["wsgi.input"] = environ[CHECKED] = CheckedInput(environ)


def guard_input(environ: WSGIEnvironment) -> None:
    """Let every reader of a body raise where it breaks off, from now on."""
    if whole_body(environ) is not None:
        return
    checked = environ.get(CHECKED)
    if checked is None:
        checked = environ["wsgi.input"] = environ[CHECKED] = CheckedInput(environ)
    checked.is_guarded = True
    if checked.is_broken:
        raise ClientDisconnected


def check_whole(environ: WSGIEnvironment) -> None:
    """Raise where a body has broken off already, which the application has read."""
    if whole_body(environ) is None and CHECKED in environ and environ[CHECKED].is_broken:
        raise ClientDisconnected


@dataclass(eq=False, repr=False, slots=True)
class Body:
    """The bytes of a body, in a file from which the view reads them."""

    stream: IO[bytes]
    size: int
    data: bytes | None  # None where the bytes are in a temporary file
    # Whether the application has read a part before, or all, and does not hold it.
    is_partial: bool = False


def body_of(request: Request) -> Body:
    """Return the body of a request, which the view can still read, under its own limits."""
    if (body := whole_body(request.environ)) is None:
        if data := vars(request).get("_cached_data"):  # the application keeps what it has read
            return in_memory(data)
        body = _replace_input(request)
    if body.is_partial:
        raise ConfigurationError(
            f"The body of a request to {request.endpoint!r} was read before its guard. Read "
            "it with request.get_data(), which keeps it (or give a lock a key=)."
        )
    return body


def read_whole(request: Request) -> None:
    """Read as much of a body as no code has read yet, so that none of it can be missing later."""
    known = vars(request)
    is_parsed = known.get("_cached_data") or known.get("form") or known.get("files")
    if not is_parsed and whole_body(request.environ) is None:
        _replace_input(request)


def was_parsed(request: Request) -> bool:
    """Whether the application has parsed the form before a guard read the body."""
    known = vars(request)
    whole = whole_body(request.environ)
    is_whole = known.get("_cached_data") or (whole is not None and not whole.is_partial)
    return "form" in known and not is_whole


def is_left_unparsed(request: Request) -> bool:
    """Whether Werkzeug found no form in a body that the application parsed as one."""
    _check_known(request.environ, length := get_content_length(request.environ))
    if request.form or request.files:
        return False
    if request.mimetype == FORM:
        if length:  # bytes that are no text
            raise ClientDisconnected
        return False
    return (whole_body(request.environ) or _replace_input(request)).size > 0


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


def whole_body(environ: WSGIEnvironment) -> Body | None:
    body: Body | None = environ.get(WHOLE)
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


def _replace_input(request: Request) -> Body:
    """Read the body, and put a file of it in the place of the server's."""
    environ, known = request.environ, vars(request)
    source, limit = known.get("stream") or environ["wsgi.input"], request.max_content_length
    checked: Any = environ.get(CHECKED)
    if checked is not None and source is checked.server:  # it was not checked from the beginning
        source = checked
    is_served = source is checked or isinstance(source, LimitedStream)
    length = checked.length if is_served and checked else get_content_length(environ)
    _check_known(environ, length)
    if length is not None and limit is not None and length > limit:
        raise RequestEntityTooLarge
    is_altered = not (is_served or isinstance(source, io.BytesIO))
    if is_altered:  # by the application, such as decompressed: it has another length
        length = None
    is_begun = checked is not None and checked.is_begun
    observed: Callable[..., Body] | None = environ.get(OBSERVED)
    body = (observed or _read)(source, length, limit)
    body.is_partial = is_begun and is_served
    environ["wsgi.input"] = body.stream
    environ[WHOLE] = body
    if "stream" in known:
        known["stream"] = body.stream
        body.is_partial |= body.size < (is_altered if length is None else length)
    return body


def _read(source: IO[bytes], length: int | None, limit: int | None) -> Body:
    read = partial(_read_piece, source)
    data = read()
    more = b"" if len(data) == length else read()
    if not more and (limit is None or len(data) <= limit):
        return in_memory(data)
    file, size = BodyFile(IN_MEMORY), 0
    try:
        for piece in chain((data, more), iter(read, b"")):
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


def _read_piece(source: IO[bytes]) -> bytes:
    try:
        return source.read(PIECE)
    except Exception as error:  # such as that of a decoder of the application
        raise disconnected(error) from error


def in_memory(data: bytes) -> Body:
    return Body(io.BytesIO(data), len(data), data)


class BodyFile(SpooledTemporaryFile[bytes]):
    """A temporary file that may be dropped: not every body is whole, or response closed."""

    def close(self) -> None:
        with suppress(OSError):
            super().close()

    def __del__(self) -> None:
        self.close()


# For guards that only observe


class NotKept(Exception):
    """A body is not held whole for a guard that only observes; the text says why."""


@contextmanager
def untouched(request: Request) -> Iterator[None]:
    """Let a guard ask that only observes: a request and its session are as before afterwards.

    The guard, and functions of the application that it calls, read a body that is held whole in
    memory, by the code of a guard that is enforced, or raise `NotKept`. The view reads it again.
    """
    environ, known = request.environ, vars(request)
    attributes, whole = known.copy(), whole_body(environ)
    entries = {name: environ.get(name) for name in ("wsgi.input", WHOLE, OBSERVED)}
    environ[OBSERVED] = partial(_read_and_put_back, environ, entries, attributes)
    streams = [file.stream for _, file in iter_multi_items(known.get("files", ()))]
    if whole is not None:
        known.pop("stream", None)  # Werkzeug's own counts the bytes that are read of it
        streams.append(whole.stream)
    try:
        with session_as_it_was(), ExitStack() as positions:
            for stream in streams:
                positions.enter_context(rewound(stream))
            yield
    finally:
        if "files" not in attributes:
            request.close()
        known.clear()
        known.update(attributes)
        environ.update(entries)


def _read_and_put_back(
    environ: WSGIEnvironment,
    entries: dict[str, Any],
    attributes: dict[str, Any],
    _: IO[bytes],
    length: int | None,
    limit: int | None,
) -> Body:
    """Read a body that fits into memory; leave an input of the same bytes, up to its error."""
    stream, checked = attributes.get("stream"), environ.get(CHECKED)
    source: Any = environ["wsgi.input"]
    if isinstance(stream, io.BytesIO):
        return in_memory(stream.getvalue()[stream.tell() :])
    is_checked = source is checked and (
        stream is None or stream is checked or isinstance(stream, LimitedStream)
    )
    if not (is_checked or stream is None or stream is source):
        raise NotKept("the application reads the body by a stream of its own")
    if checked is None and not environ.get("wsgi.input_terminated"):
        return in_memory(b"")
    too_long = NotKept(f"the body is longer than {IN_MEMORY} bytes")
    if length is not None and length > IN_MEMORY:
        raise too_long
    if is_checked:
        data, error = source.read_ahead(IN_MEMORY + 1)
    else:
        data, error = read_at_most(source, IN_MEMORY + 1)
        entries["wsgi.input"] = again = Again(data, source, error)
        if stream is not None:
            attributes["stream"] = again
    if error is not None:
        raise error if isinstance(error, HTTPException) else ClientDisconnected from error
    if limit is not None and len(data) > limit:
        raise RequestEntityTooLarge
    if len(data) > IN_MEMORY:
        raise too_long
    return in_memory(data)
