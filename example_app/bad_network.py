"""A network that loses answers, for those who ask for it.

A request with the header `X-Example-Operation` says what it is a try of, and with
`X-Example-Lose` the answers to how many tries shall be lost. The application carries such a
request out and answers; then the answer is thrown away and the connection is cut, as if a phone
had entered a tunnel. The client cannot know whether it was carried out, which is the whole point.

It stands around the application, not in it: the views and the guards know nothing of it, and have
settled everything before their answer is lost.
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


class BadNetwork:
    """Wraps a WSGI application.

    Args:
        app: the application.
        database: counts the tries, so that it does not matter which process gets them.
    """

    def __init__(self, app: WSGIApplication, database: Database) -> None:
        self._app = app
        self._database = database

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Pass a request on, and sometimes lose what comes back."""
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
        if operation is None or not losses.isdecimal():
            return False
        operation = operation[:64]
        row = self._database.write("INSERT INTO tries (operation) VALUES (?)", operation)
        nth_try = self._database.value(
            "SELECT count(*) FROM tries WHERE operation = ? AND rowid <= ?", operation, row
        )
        return bool(nth_try <= min(int(losses), MOST_LOSSES))


def cut(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Cut the connection; where a server hides its socket, answer as a gateway would."""
    connection = environ.get("werkzeug.socket") or environ.get("gunicorn.socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # what is sent after this goes nowhere
    start_response("503 Service Unavailable", [("Retry-After", "1"), ("Content-Length", "0")])
    return []
