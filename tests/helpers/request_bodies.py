"""Bodies of every kind, sent as servers pass them on."""

import io

from flask import Response
from werkzeug.test import EnvironBuilder, run_wsgi_app

from flask_idempotence import idempotent, no_repeat_submit, one_time_token
from flask_idempotence.request.body import IN_MEMORY
from helpers.apps import make_app

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
PARTS = "multipart/form-data; boundary=x"
BYTES = "application/octet-stream"


def part(name, content, more=""):
    return (
        f'--x\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{content}\r\n'.encode()
    )


def large(body, size=IN_MEMORY + 10):
    """Return a longer body that means the same to all who parse it."""
    return body + b" " * (size - len(body))


BODIES = {
    "JSON": (JSON, b'{"a": 1, "b": [2.50]}'),
    "long JSON": (JSON, large(b'{"a": 1}')),
    "no JSON": (JSON, b'{"a": '),
    "a form": (FORM, b"a=1&b=2&a=3"),
    "a long form": (FORM, b"a=" + b"x" * (IN_MEMORY + 10)),
    "a form that is no UTF-8": (FORM, b"a=\xff"),
    "a multipart form": (PARTS, part("a", "1") + part("b", "2") + b"--x--\r\n"),
    "a file": (PARTS, part("f", "content", '; filename="f.txt"') + b"--x--\r\n"),
    "a long file": (PARTS, part("f", "x" * (IN_MEMORY + 10), '; filename="f"') + b"--x--\r\n"),
    "broken multipart": (PARTS, part("a", "1")[:-9]),
    "bytes": (BYTES, bytes(range(256))),
    "many bytes": (BYTES, b"\0\n" * (IN_MEMORY // 2 + 10)),
    "nothing": (BYTES, b""),
}


GUARDS = {
    "lock": no_repeat_submit(60),
    "key": idempotent(),
    "token": one_time_token(),
    "key in lock": lambda view: no_repeat_submit(60)(idempotent()(view)),
}


def nothing():
    return {}


def app_with(view, guard=None, **settings):
    app = make_app(**settings)
    app.add_url_rule("/", "view", guard(view) if guard else view, methods=["POST"])
    return app


def post(app, body, content_type, *, path="/", chunked=False, **headers):
    """Send a body as a server would pass it on, with the headers that all guards want."""
    headers = {"Idempotency-Key": "k", **headers}
    if "Idempotence-Token" not in headers:
        headers["Idempotence-Token"] = app.test_client().get("/token").json["token"]
    how = {"CONTENT_LENGTH": str(len(body))}
    if chunked:
        how = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    return send(app, body, content_type, how, headers, path)


def send(app, body, content_type, environ, headers=(), path="/"):
    """Send a body with this environment, to which the client adds no length."""
    whole = EnvironBuilder(path, method="POST", headers=headers).get_environ()
    whole.pop("CONTENT_LENGTH", None)
    whole.update({"CONTENT_TYPE": content_type, "wsgi.input": io.BytesIO(body), **environ})
    return Response(*run_wsgi_app(app, whole, buffered=True))
