"""A request's body: read whole, and left readable for the view."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from werkzeug.exceptions import ClientDisconnected

from .errors import ConfigurationError

if TYPE_CHECKING:
    from flask import Request
    from werkzeug.datastructures import MultiDict

T = TypeVar("T")

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
_PIECE = 1 << 16


def data_of(request: Request) -> bytes:
    """Return the bytes of a body.

    Raises:
        HTTPException: there are too many, or the client went away in the middle of them.
        ConfigurationError: somebody else has read them and left nothing.
    """
    was_touched = "stream" in vars(request)
    data = _read(request.get_data)
    # Whoever reads the stream instead of the data finds it at its beginning.
    vars(request)["stream"] = io.BytesIO(data)
    if not data:
        _check_unread(request, was_touched=was_touched)
    _check_whole(request, len(data))
    return data


def form_of(request: Request) -> MultiDict[str, str]:
    """Return the fields of a form.

    Raises:
        HTTPException: it is too large, or the client went away in the middle of it.
    """
    known = vars(request)
    was_touched = "stream" in known and "form" not in known and not known.get("_cached_data")
    if request.mimetype == MULTIPART:
        form = _form_of_parts(request)
        if not form and not request.files:
            _check_unread(request, was_touched=was_touched)
        return form
    if request.mimetype != FORM:
        return request.form
    data = _read(request.get_data)
    form = request.form
    known["stream"] = io.BytesIO(data)
    if not form:
        _check_unread(request, was_touched=was_touched)
    if data or not form:  # else somebody else has parsed it
        _check_whole(request, len(data))
    return form


def digest_of(stream: Any) -> str:
    """Return the SHA-256 of a file in hexadecimal, and leave the file as it was."""
    position = stream.tell()
    stream.seek(0)
    digest = hashlib.sha256()
    while piece := stream.read(_PIECE):
        digest.update(piece)
    stream.seek(position)
    return digest.hexdigest()


def _form_of_parts(request: Request) -> MultiDict[str, str]:
    begun = "form" in vars(request) or "stream" in vars(request)
    if begun or "wsgi.input_terminated" not in request.environ:
        # Somebody else's business; or werkzeug itself counts.
        return _read(lambda: request.form)
    counted = _Counted(request.environ["wsgi.input"])
    request.environ["wsgi.input"] = counted
    form = _read(lambda: request.form)
    while _read(lambda: counted.read(_PIECE)):  # what the parser did not understand
        pass
    _check_whole(request, counted.count)
    return form


def _read(read: Callable[[], T]) -> T:
    try:
        return read()
    except OSError:  # a server's way to say that a chunk is broken, or the client gone
        raise ClientDisconnected from None


class _Counted:
    """A stream that counts what is read of it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.count = 0

    def read(self, *size: int) -> Any:
        piece = self._stream.read(*size)
        self.count += len(piece)
        return piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _check_whole(request: Request, count: int) -> None:
    # Some servers pass on what came before the client went away as if it were the body. A guard
    # must not take half a request for a whole one.
    if count < (request.content_length or 0):
        raise ClientDisconnected


def _check_unread(request: Request, *, was_touched: bool) -> None:
    is_chunked = "chunked" in request.headers.get("Transfer-Encoding", "").lower()
    if was_touched and (request.content_length or is_chunked):
        raise ConfigurationError(
            f"The body of a request to {request.endpoint!r} was read before its guard could see "
            "it. Read it with request.get_data(), which keeps it (or give a lock a key=)."
        )
