"""A request as guards see it that only observe: afterwards it is as if none had looked."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from flask import Request
from werkzeug.datastructures import iter_multi_items
from werkzeug.exceptions import ClientDisconnected, HTTPException, RequestEntityTooLarge
from werkzeug.wsgi import LimitedStream

from .body import IN_MEMORY, OBSERVED, WHOLE, Body, in_memory, rewound, whole_body
from .input import CHECKED, Again, read_at_most
from .proxies import session_as_it_was

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


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
