"""The server's input, watched: it shows where a body broke off, whichever code reads it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from flask import Flask
from flask.globals import request_ctx
from werkzeug.exceptions import ClientDisconnected, HTTPException
from werkzeug.wsgi import get_content_length

from .proxies import actual

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

KEPT = "flask_idempotence.body"
"""Where the environment has the body that a guard has read whole."""

WATCHED = "flask_idempotence.input"
"""Where it has the watched input of the server, which the application may replace by its own."""


_logger = logging.getLogger("flask_idempotence")


class WatchedInput:
    """An input of the server. Behind a guard, it raises where the body has broken off.

    Some servers pass on the bytes before a disconnect as if they were the body, others raise
    errors of their own.

    Attributes:
        is_broken: whether the body has broken off, as far as it was read.
        is_guarded: whether to raise an error then, in place of what the server does.
    """

    def __init__(self, environ: WSGIEnvironment) -> None:
        length = get_content_length(environ)
        self.is_broken = self.is_guarded = False
        self._stream: IO[bytes] = environ["wsgi.input"]
        self._left = length or 0
        # Reading on, a server may wait for more.
        self._is_endless = not environ.get("wsgi.input_terminated") and (
            length is not None or "HTTP_TRANSFER_ENCODING" not in environ
        )

    def read(self, size: int | None = -1) -> bytes:
        most = -1 if size is None else size
        data = self._take(self._stream.read, most)
        while self._left > 0 and not 0 <= most <= len(data):
            more = self._take(self._stream.read, most if most < 0 else most - len(data))
            if not more:
                self._break_off()
                break
            data += more
        return data

    read1 = read

    def readinto(self, buffer: bytearray | memoryview) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readline(self, size: int | None = -1) -> bytes:
        most = -1 if size is None else size
        line = self._take(self._stream.readline, most)
        if self._left > 0 and not line.endswith(b"\n") and not 0 <= most <= len(line):
            self._break_off()
        return line

    def readlines(self, _: int | None = -1) -> list[bytes]:
        return list(self)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "read")) and name != "readable":  # a way around the count
            raise AttributeError(name)
        if name == "seek":
            self._left, self._is_endless = 0, False
        return getattr(self._stream, name)

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
        self._left -= len(data)
        return data

    def _break_off(self) -> None:
        self.is_broken = True
        if self.is_guarded:
            raise ClientDisconnected


def watch_input(_: Flask, **__: object) -> None:
    """Watch the body of a request, if it has one; receives the signal `request_started`.

    From the beginning, since the application may read it before a guard does.
    """
    environ = actual(request_ctx).request.environ
    has_body = (environ.get("CONTENT_LENGTH") or "0") != "0" or "HTTP_TRANSFER_ENCODING" in environ
    if has_body and KEPT not in environ:
        environ["wsgi.input"] = environ[WATCHED] = WatchedInput(environ)


def guard_input(environ: WSGIEnvironment) -> None:
    """Let every reader of a body raise where it breaks off, from now on."""
    watched, kept = environ.get(WATCHED), environ.get(KEPT)
    if kept is not None and kept.stream is environ["wsgi.input"]:
        return
    if watched is None:
        watched = environ["wsgi.input"] = environ[WATCHED] = WatchedInput(environ)
    watched.is_guarded = True
    if watched.is_broken:
        raise ClientDisconnected
