"""Key mode and whatever a client sends: no error of ours, and no claim left behind."""

import http.client
import io
import socket

import pytest
from flask import request
from helpers.apps import KeyedApp
from helpers.servers.processes import HOST, Gunicorn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from werkzeug.test import EnvironBuilder, run_wsgi_app

TOO_LARGE = [{"json": "x" * 2000}, {"data": {"a": (io.BytesIO(b"x" * 2000), "a")}}]


@pytest.mark.parametrize("sent", TOO_LARGE)
def test_a_body_that_is_too_large_leaves_no_claim(sent):
    keyed = KeyedApp(settings={"MAX_CONTENT_LENGTH": 1000})
    assert keyed.verdicts(sent) == [413]
    assert (keyed.store.count_all(), keyed.runs) == (0, 0)
    assert keyed.verdicts({}) == [200]  # the key is as good as new


NASTY = (
    *(b"\0", b"\r\n", b'"', b'"\\', b'","', b":", b"*", b"\x7f", b"\xc3\xa9", b"k" * 300, b"%ff"),
    *(b"..", b"/", b"[", b"http://", b"-1", b"1e9", b"chunked", b"Bearer ", b"text/html;q=nan"),
)
RAW = st.lists(st.sampled_from(NASTY) | st.binary(max_size=5), max_size=5).map(
    lambda pieces: b"".join(pieces).decode("latin-1")  # as a server hands it on
)
FIELDS = (
    *("HTTP_IDEMPOTENCY_KEY", "HTTP_IDEMPOTENCE_TOKEN", "HTTP_AUTHORIZATION", "HTTP_COOKIE"),
    *("HTTP_ACCEPT", "HTTP_HOST", "HTTP_TRANSFER_ENCODING", "HTTP_X_FORWARDED_FOR", "REMOTE_ADDR"),
    *("CONTENT_LENGTH", "CONTENT_TYPE", "QUERY_STRING", "SCRIPT_NAME", "REQUEST_METHOD"),
)
CONTENT_TYPES = st.sampled_from(
    (
        *(
            "application/json",
            "application/x+json; charset=klingon",
            "application/x-www-form-urlencoded",
            "",
        ),
        *("multipart/form-data; boundary=x", "multipart/form-data", "text/plain;;=", "\xff"),
    )
)
BODIES = st.binary(max_size=60) | st.sampled_from(
    (
        *(b'{"a":' * 2000, b'"\\ud800"', b"--x\r\n\r\n--x--", b"a=%ff&=&&", b"\0" * 50, b"1e999"),
        *(b'--x\r\nContent-Disposition: form-data; name="f"; filename="\xff"\r\n\r\nf\r\n--x--',),
    )
)


def keyed_app(**settings):
    keyed = KeyedApp(lambda: request.data, settings={"TESTING": False, **settings})
    keyed.add("/strict", lambda: request.data, required=True, on_repeat="reject")
    return keyed


GUARDED, BARE = keyed_app(), keyed_app(IDEMPOTENCE_ENABLED=False)


@example("/", {}, "application/json", b'{"a":' * 100_000)
@example("/", {"QUERY_STRING": "\xff"}, "", b"")
@settings(max_examples=150, deadline=None)
@given(
    path=st.sampled_from(["/", "/strict"]),
    fields=st.dictionaries(st.sampled_from(FIELDS), RAW, max_size=4),
    content_type=CONTENT_TYPES,
    body=BODIES,
)
def test_garbage_in_any_field_is_no_error_of_ours(path, fields, content_type, body):
    environ = {
        **EnvironBuilder(path, method="POST").get_environ(),
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": content_type,
        "HTTP_IDEMPOTENCY_KEY": "k",
        **fields,
    }

    def status(keyed):
        _, status, _ = run_wsgi_app(keyed.app, {**environ, "wsgi.input": io.BytesIO(body)})
        return int(status.split()[0])

    without_guards = status(BARE)
    assert max(status(GUARDED), status(GUARDED)) < 500 or without_guards == 500
    assert BARE.runs  # so it does run


APP = """
import os
import redis
from flask import Flask, request
from flask_idempotence import Idempotence, idempotent

app = Flask("uploads")
app.config.update(
    SECRET_KEY="a secret for the tests",
    IDEMPOTENCE_STORAGE_URI=os.environ["STORE"],
)
Idempotence(app)
effects = redis.Redis.from_url(os.environ["EFFECTS"])

@app.get("/")
def index():
    return {}

@app.post("/pay")
@idempotent(required=True)
def pay():
    body = request.form.to_dict() or request.get_json(silent=True)
    effects.rpush("bodies", repr(body))
    return {"paid": body}

"""


class Service:
    """The application above under Gunicorn, spoken to byte by byte."""

    def __init__(self, directory, redis_server):
        (directory / "uploads.py").write_text(APP)
        self.effects = redis_server.client(db=5, decode_responses=True)
        self.store = redis_server.client(db=6)
        database = redis_server.url.removesuffix("/0")
        environment = {"STORE": f"{database}/6", "EFFECTS": f"{database}/5"}
        self.server = Gunicorn("uploads:app", workers=1, env=environment, cwd=directory)

    def post(self, *lines, body=b"", cut=None):
        """Send a request, and no more of its body; return the status and the body."""
        lines = ["POST /pay HTTP/1.1", "Host: localhost", *lines, f"Content-Length: {len(body)}"]
        with socket.create_connection((HOST, self.server.port), timeout=10) as connected:
            head = "\r\n".join([*lines, "Connection: close", "", ""])
            connected.sendall(head.encode("latin-1") + body[:cut])
            connected.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(connected)
            response.begin()
            return response.status, response.read()

    def left(self):
        """Return the bodies that views have read, and the keys in the store."""
        return self.effects.lrange("bodies", 0, -1), self.store.keys()


@pytest.fixture(scope="module")
def server(tmp_path_factory, redis_server):
    service = Service(tmp_path_factory.mktemp("uploads"), redis_server)
    with service.server:
        yield service


@pytest.fixture
def service(server):
    server.effects.flushdb()
    server.store.flushdb()
    return server


JSON = b'{"to": "alice", "amount": "1000"}'
MULTIPART = (
    b'--x\r\nContent-Disposition: form-data; name="to"\r\n\r\nalice\r\n'
    b'--x\r\nContent-Disposition: form-data; name="amount"\r\n\r\n1000\r\n--x--\r\n'
)
UPLOADS = {
    "JSON": ("application/json", JSON, 20),
    "a form": ("application/x-www-form-urlencoded", b"to=alice&amount=1000", 18),
    "a multipart form": ("multipart/form-data; boundary=x", MULTIPART, 70),
    "nothing of it": ("application/json", JSON, 0),
}


@pytest.mark.servers
@pytest.mark.gunicorn
@pytest.mark.parametrize("kind", UPLOADS)
def test_a_client_that_goes_away_in_mid_upload_leaves_no_claim(service, kind):
    content_type, body, cut = UPLOADS[kind]
    lines = ["Idempotency-Key: k", f"Content-Type: {content_type}"]
    status, _ = service.post(*lines, body=body, cut=cut)
    assert (status, service.left()) == (400, ([], []))
    for _ in range(2):  # the whole of it may be sent with the same key
        assert service.post(*lines, body=body)[0] == 200
    assert service.left()[0] == ["{'to': 'alice', 'amount': '1000'}"]


@pytest.mark.servers
@pytest.mark.gunicorn
@pytest.mark.parametrize("keys", [("a", "b"), ("a", '"a"'), ("a", "")])
def test_several_lines_with_a_key_are_invalid(service, keys):
    lines = [f"Idempotency-Key: {key}" for key in keys]
    status, body = service.post(*lines, body=b"{}")
    assert (status, b"key-invalid" in body) == (400, True)
    assert service.left() == ([], [])
