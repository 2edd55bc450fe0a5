"""Key mode and whatever a client sends: no error of ours, and no claim left behind."""

import http.client
import io
import socket

import pytest
from flask import request
from helpers.apps import make_app
from helpers.servers.processes import HOST, Gunicorn, until
from hypothesis import example, given, settings
from hypothesis import strategies as st
from werkzeug.test import EnvironBuilder, run_wsgi_app

from flask_idempotence import MemoryStore, idempotent


class Site:
    """An application whose view keeps what it reads."""

    def __init__(self, view=lambda: request.data, **settings):
        self.store = MemoryStore()
        self.app = make_app(store=self.store, **settings)
        self.seen = []

        def noted():
            self.seen.append(view())
            return {"runs": len(self.seen)}

        for path, options in [("/", {}), ("/strict", {"required": True, "on_repeat": "reject"})]:
            self.app.add_url_rule(path, path, idempotent(**options)(noted), methods=["POST"])

    def post(self, body=b"", key="k", path="/", **options):
        options.setdefault("headers", {"Idempotency-Key": key})
        return self.app.test_client().post(path, data=body, **options)

    def codes(self, *bodies, **options):
        return [self.post(body, **options).status_code for body in bodies]


JSON = "application/json"
TOO_LARGE = {
    JSON: b'"' + b"x" * 2000 + b'"',
    "text/plain": b"x" * 2000,
    "application/x-www-form-urlencoded": b"a=" + b"x" * 2000,
    "multipart/form-data": {"a": "x" * 2000},
}


@pytest.mark.parametrize("content_type", TOO_LARGE)
def test_a_body_that_is_too_large_is_flasks_own_error_and_leaves_no_claim(content_type):
    site = Site(MAX_CONTENT_LENGTH=1000)
    large = TOO_LARGE[content_type]
    for _ in range(2):
        answer = site.post(large, content_type=content_type)
        assert (answer.status_code, answer.mimetype) == (413, "text/html")
    assert (site.store.count_all(), site.seen) == (0, [])
    assert site.codes(b"small enough") == [200]  # the key is as good as new


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
        *(JSON, "application/x+json; charset=klingon", "application/x-www-form-urlencoded", ""),
        *("multipart/form-data; boundary=x", "multipart/form-data", "text/plain;;=", "\xff"),
    )
)
BODIES = st.binary(max_size=60) | st.sampled_from(
    (
        *(b'{"a":' * 2000, b'"\\ud800"', b"--x\r\n\r\n--x--", b"a=%ff&=&&", b"\0" * 50, b"1e999"),
        *(b'--x\r\nContent-Disposition: form-data; name="f"; filename="\xff"\r\n\r\nf\r\n--x--',),
    )
)


@pytest.fixture(scope="module")
def sites():
    """A site, and one whose guards let everything through."""
    guarded, bare = Site(), Site(IDEMPOTENCE_ENABLED=False)
    for site in (guarded, bare):
        site.app.testing = False  # an error is a 500
    return guarded, bare


@example("/", {}, JSON, b'{"a":' * 100_000)
@example("/", {"QUERY_STRING": "\xff"}, "", b"")
@settings(max_examples=150, deadline=None)
@given(
    path=st.sampled_from(["/", "/strict"]),
    fields=st.dictionaries(st.sampled_from(FIELDS), RAW, max_size=4),
    content_type=CONTENT_TYPES,
    body=BODIES,
)
def test_garbage_in_any_field_is_no_error_of_ours(sites, path, fields, content_type, body):
    guarded, bare = sites
    environ = {
        **EnvironBuilder(path, method="POST").get_environ(),
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": content_type,
        "HTTP_IDEMPOTENCY_KEY": "k",
        **fields,
    }

    def status(site):
        _, status, _ = run_wsgi_app(site.app, {**environ, "wsgi.input": io.BytesIO(body)})
        return int(status.split()[0])

    without_guards = status(bare)
    assert max(status(guarded), status(guarded)) < 500 or without_guards == 500
    assert bare.seen  # so it does run


APP = """
import os, time
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

@app.post("/stream")
@idempotent(required=True)
def stream():
    effects.rpush("bodies", "streamed")
    return (b"x" * 65536 for _ in range(10_000))
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

    def connect(self, path, *lines, body=b"", length=None):
        """Begin a request with these header lines, and return the socket."""
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", *lines]
        if length is not None:
            lines.append(f"Content-Length: {length}")
        connected = socket.create_connection((HOST, self.server.port), timeout=10)
        connected.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        return connected

    def post(self, path, *lines, body=b"", length=None):
        """Send a request, and no more after that; return the status and the body."""
        length = len(body) if length is None else length
        with self.connect(path, *lines, body=body, length=length) as connected:
            connected.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(connected)
            response.begin()
            return response.status, response.read()

    @property
    def bodies(self):
        return self.effects.lrange("bodies", 0, -1)


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


MULTIPART = (
    b'--x\r\nContent-Disposition: form-data; name="to"\r\n\r\nalice\r\n'
    b'--x\r\nContent-Disposition: form-data; name="amount"\r\n\r\n1000\r\n--x--\r\n'
)
PAID = "{'to': 'alice', 'amount': '1000'}"
UPLOADS = {
    "JSON": (JSON, b'{"to": "alice", "amount": "1000"}', 20),
    "a form": ("application/x-www-form-urlencoded", b"to=alice&amount=1000", 18),
    "a multipart form": ("multipart/form-data; boundary=x", MULTIPART, 70),
    "compressed": (f"{JSON}\r\nContent-Encoding: gzip", b'{"to": "alice", "amount": "1000"}', 20),
    "nothing of it": (JSON, b'{"to": "alice", "amount": "1000"}', 0),
}


@pytest.mark.servers
@pytest.mark.gunicorn
@pytest.mark.parametrize("kind", UPLOADS)
def test_a_client_that_goes_away_in_mid_upload_leaves_no_claim(service, kind):
    content_type, body, cut = UPLOADS[kind]
    lines = ["Idempotency-Key: k", f"Content-Type: {content_type}"]
    status, _ = service.post("/pay", *lines, body=body[:cut], length=len(body))
    assert (service.bodies, service.store.keys(), status) == ([], [], 400)
    for _ in range(2):  # the whole of it may be sent with the same key
        assert service.post("/pay", *lines, body=body)[0] == 200
    assert service.bodies == [PAID]


@pytest.mark.servers
@pytest.mark.gunicorn
def test_a_chunked_upload_that_breaks_off_leaves_no_claim(service):
    lines = ["Idempotency-Key: k", f"Content-Type: {JSON}", "Transfer-Encoding: chunked"]
    with service.connect("/pay", *lines, body=b"2\r\n[1\r\n5\r\n,2") as connected:
        connected.shutdown(socket.SHUT_WR)
        connected.recv(65536)
    assert (service.bodies, service.store.keys()) == ([], [])


@pytest.mark.servers
@pytest.mark.gunicorn
def test_a_client_that_goes_away_in_mid_download_leaves_a_settled_request(service):
    with service.connect("/stream", "Idempotency-Key: k", length=0) as connected:
        assert connected.recv(1000).startswith(b"HTTP/1.1 200")
        assert b"key-in-progress" in service.post("/stream", "Idempotency-Key: k")[1]
    assert until(lambda: b"outcome-unknown" in service.post("/stream", "Idempotency-Key: k")[1])
    assert service.bodies == ["streamed"]


SEVERAL = {
    "different": ("a", "b"),
    "equal": ("a", "a"),
    "quoted": ('"a"', '"b"'),
    "mixed": ("a", '"a"'),
    "one of them empty": ("a", ""),
}


@pytest.mark.servers
@pytest.mark.gunicorn
@pytest.mark.parametrize("how", SEVERAL)
def test_several_lines_with_a_key_are_invalid(service, how):
    lines = [f"Idempotency-Key: {key}" for key in SEVERAL[how]]
    status, body = service.post("/pay", *lines, body=b"{}")
    assert (status, b"key-invalid" in body) == (400, True)
    assert (service.bodies, service.store.keys()) == ([], [])
