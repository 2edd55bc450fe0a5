"""A simulated network that loses responses on request.

The header `X-Example-Operation` names the operation that a request attempts, and
`X-Example-Lose` the number of attempts whose responses are lost. The application runs such a
request to its end; then the response is discarded and the connection is cut, as if a phone had
entered a tunnel. The client cannot know whether its request took effect.

This is WSGI middleware: the views and the guards do not know of it, and have settled their claims
before a response is lost.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .database import Database

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

MOST_LOSSES = 5
MOST_DIGITS = 4


class BadNetwork:
    """Wraps a WSGI application.

    Args:
        app: the application.
        database: counts the attempts, which may reach different processes.
    """

    def __init__(self, app: WSGIApplication, database: Database) -> None:
        self._app = app
        self._database = database

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Call the application, and lose its response if the request asks for that."""
        if not self._loses_answer(environ):
            return self._app(environ, start_response)
        answer = self._app(environ, lambda *_: lambda _: None)
        try:
            for _ in answer:
                pass
        finally:
            if hasattr(answer, "close"):
                answer.close()
        return cut(environ, start_response)

    def _loses_answer(self, environ: WSGIEnvironment) -> bool:
        operation = environ.get("HTTP_X_EXAMPLE_OPERATION")
        losses = environ.get("HTTP_X_EXAMPLE_LOSE", "0")
        if operation is None or not losses.isdecimal() or len(losses) > MOST_DIGITS:
            return False
        operation = operation[:64]
        row = self._database.write("INSERT INTO tries (operation) VALUES (?)", operation)
        nth_try = self._database.value(
            "SELECT count(*) FROM tries WHERE operation = ? AND rowid <= ?", operation, row
        )
        return bool(nth_try <= min(int(losses), MOST_LOSSES))


def cut(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Cut the connection; without access to the socket, answer 503 as a gateway would."""
    connection = environ.get("werkzeug.socket") or environ.get("gunicorn.socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # later writes are discarded
    start_response("503 Service Unavailable", [("Retry-After", "1"), ("Content-Length", "0")])
    return []
