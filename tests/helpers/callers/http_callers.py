"""Callers for the tests of the client: one face for each library, and servers to call."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx
import requests
from werkzeug.serving import WSGIRequestHandler, make_server

from flask_idempotence.client import Retries
from flask_idempotence.client.httpx import AsyncIdempotentTransport, IdempotentTransport
from flask_idempotence.client.requests import IdempotentAdapter
from helpers.servers.processes import HOST

RUNNING = (409, {"Idempotence-Refusal": "key-in-progress", "Retry-After": "1"}, b"{}")
DONE = (201, {}, b"done")
DOWN = (503, {}, b"")
HALF = b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nhalf"


class Answer(NamedTuple):
    """What the rules of retrying look at."""

    status_code: int
    headers: Mapping[str, str]

    def close(self):
        """Do nothing: it has no connection."""


class QuietHandler(WSGIRequestHandler):
    """Keeps connections open, as production servers do, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, *_):
        """Say nothing: broken connections are what the tests are about."""


@contextlib.contextmanager
def serving(app, handler=QuietHandler, **options):
    """Serve an application from a thread for each connection; gives its address."""
    server = make_server(HOST, 0, app, threaded=True, request_handler=handler, **options)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        scheme = "https" if options.get("ssl_context") else "http"
        yield f"{scheme}://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def hang_up(environ, sent=b""):
    connection = environ["werkzeug.socket"]
    with contextlib.suppress(OSError):
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_RDWR)
    return []


def body_of(environ):
    ends_by_itself = environ.get("wsgi.input_terminated")
    length = -1 if ends_by_itself else int(environ.get("CONTENT_LENGTH") or 0)
    return environ["wsgi.input"].read(length)


@dataclass
class Script:
    """A server that gives one answer after the other, the last one again and again.

    An answer is a status with headers and a body, or bytes after which the connection ends.
    """

    answers: list
    keys: list = field(default_factory=list)
    bodies: list = field(default_factory=list)
    methods: list = field(default_factory=list)
    header: str = "HTTP_IDEMPOTENCY_KEY"

    def __call__(self, environ, start_response):
        answer = self.answers[min(len(self.keys), len(self.answers) - 1)]
        self.keys.append(environ.get(self.header))
        self.methods.append(environ["REQUEST_METHOD"])
        self.bodies.append(body_of(environ))
        if isinstance(answer, bytes):
            start_response("200 OK", [("Content-Length", "0")])
            return hang_up(environ, answer)
        status, headers, body = answer
        start_response(f"{status} -", [*headers.items(), ("Content-Length", str(len(body)))])
        return [body]


class Pauses(list):
    """Records waits instead of waiting, and lets a clock go on by them.

    What happens meanwhile is in `meanwhile`.
    """

    seconds = 1000.0

    @staticmethod
    def meanwhile():
        """Do nothing."""

    def clock(self):
        return self.seconds

    def __call__(self, wait):
        self.append(wait)
        self.seconds += wait
        self.meanwhile()

    async def later(self, wait):
        self(wait)


class ByRequests:
    NO_ANSWER = requests.RequestException

    def __init__(self, retries, pauses, **options):
        self.session = requests.Session()
        self.session.trust_env = False
        adapter = IdempotentAdapter(retries, sleep=pauses, **options)
        self.session.mount("http://", adapter)
        self.session.mount("https://", adapter)

    def __call__(self, method, url, *, content=None, timeout=10, **options):
        return self.session.request(method, url, data=content, timeout=timeout, **options)

    def close(self):
        self.session.close()


class ByHttpx(httpx.Client):
    NO_ANSWER = httpx.HTTPError

    def __init__(self, retries, pauses, **options):
        transport = IdempotentTransport(retries=retries, sleep=pauses, **options)
        super().__init__(transport=transport, follow_redirects=True, timeout=10)

    __call__ = httpx.Client.request


class ByAsyncHttpx:
    NO_ANSWER = httpx.HTTPError

    def __init__(self, retries, pauses, **options):
        transport = AsyncIdempotentTransport(retries=retries, sleep=pauses.later, **options)
        self.client = httpx.AsyncClient(transport=transport, follow_redirects=True, timeout=10)
        self.loop = asyncio.new_event_loop()

    def __call__(self, method, url, **options):
        return self.loop.run_until_complete(self.client.request(method, url, **options))

    def close(self):
        self.loop.run_until_complete(self.client.aclose())
        self.loop.close()


CALLERS = {"requests": ByRequests, "httpx": ByHttpx, "async httpx": ByAsyncHttpx}


def retries_with(pauses, **rules):
    return Retries(clock=pauses.clock, chance=lambda: 1.0, **rules)
