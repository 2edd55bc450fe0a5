"""The common parts of all variants: one view, the same settings and the same requests.

Every variant is a Flask application of its own. Its view answers with a small dict; `WORK` says
whether it reads its JSON, and how long that is.
"""

import io
import itertools
import json
from dataclasses import dataclass

from flask import Flask, request
from measuring.timing import DONE, Prepare, Variant

SECRET = "benchmark-secret-0123456789abcdef"
URL = "/orders"
HEADERS = {"HTTP_AUTHORIZATION": "Bearer eyJhbGciOiJIUzI1NiJ9.c3ViOjQyMTc"}

_numbers = itertools.count(10_000_000)
_LINE = {"item": "espresso machine", "quantity": 2, "price": 129.5, "tags": ["kitchen", "gift"]}
_LINE_BYTES = len(json.dumps(_LINE)) + 2


@dataclass
class Work:
    """What each view does, and gets."""

    bytes: int = 100  # of the body, about
    reads: bool = True  # its JSON

    @property
    def name(self) -> str:
        size = f"{self.bytes} B" if self.bytes < 1000 else f"{self.bytes // 1000} kB"
        return f"{size}, {'read' if self.reads else 'unread'}"


WORK = Work()


def order() -> bytes:
    """Return a body of about so many bytes; each is new."""
    content = {"order": next(_numbers), "item": "espresso machine", "quantity": 2}
    if WORK.bytes > 200:
        content["lines"] = [_LINE] * ((WORK.bytes - 100) // _LINE_BYTES)
    return json.dumps({**content, "address": "12 Example Street, 12345 Town"}).encode()


def environ(headers: dict[str, str] = HEADERS, *, body: bytes | None = None) -> dict:
    if body is None:
        body = order()
    return {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": URL,
        "QUERY_STRING": "",
        "SERVER_NAME": "shop.example",
        "SERVER_PORT": "443",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "192.0.2.17",
        "HTTP_HOST": "shop.example",
        "HTTP_USER_AGENT": "benchmark/1.0",
        "HTTP_ACCEPT": "application/json",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        **headers,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


def orders(count: int) -> list[dict]:
    """Prepare so many requests, each a new order."""
    return [environ() for _ in range(count)]


def answer() -> dict:
    """Do the work of every view."""
    request.environ[DONE] = True
    number = request.get_json()["order"] if WORK.reads else 10_000_000
    return {"order": number, "status": "created"}


def application(name: str, view=answer, **settings) -> Flask:
    app = Flask(name)
    app.config.update(SECRET_KEY=SECRET, **settings)
    app.add_url_rule(URL, "create_order", view, methods=["POST"])
    return app


def storage(uri: str) -> dict:
    """Return the settings for a store at a URI, which a busy disk may keep waiting for long."""
    options = {} if uri.startswith("memory:") else {"deadline": 10}
    return {"IDEMPOTENCE_STORAGE_URI": uri, "IDEMPOTENCE_STORAGE_OPTIONS": options}


def plain(prepare: Prepare = orders) -> Variant:
    name = "Flask without a guard"
    return Variant(name, application(name), prepare)
