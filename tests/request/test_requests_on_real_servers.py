"""What real servers make of a request: headers with an underscore, bodies in chunks."""

import http.client
import json
import socket
import threading

import pytest
from helpers.request_bodies import FORM
from helpers.servers.processes import HOST, Gunicorn
from werkzeug.serving import WSGIRequestHandler, make_server

APP = """
from flask import Flask, request
from flask_idempotence import Idempotence, idempotent, no_repeat_submit, one_time_token

app = Flask("shop")
app.config.update(SECRET_KEY="s", IDEMPOTENCE_IP_HEADER="X-Real-IP")
app.debug = True  # claims in memory are fine here
app.config["PROPAGATE_EXCEPTIONS"] = False  # an error is answered as in production
Idempotence(app)


@app.post("/vote")
@no_repeat_submit(60)
def vote():
    return "Counted."


@app.post("/pay")
@idempotent()
def pay():
    return request.get_data()


@app.post("/spend")
@one_time_token
def spend():
    return "Spent."


def upload():
    return request.get_data()


GUARDS = {
    "key": idempotent(compare=False),
    "token": one_time_token(),
    "lock": no_repeat_submit(60, key=lambda: request.headers["Idempotency-Key"]),
}
for name, guard in GUARDS.items():
    app.add_url_rule(f"/upload/{name}", name, guard(upload), methods=["POST"])
"""


def ask(port, path, headers=(), body=(), method="POST"):
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        if body:
            chunks = iter(body)
            connection.request("POST", path, chunks, dict(headers), encode_chunked=True)
        else:
            connection.putrequest(method, path)
            for name, value in headers:
                connection.putheader(name, value)
            connection.putheader("Content-Length", "0")
            connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def send_chunks(port, path, chunks):
    head = f"POST {path} HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n"
    head += f"Content-Type: {FORM}\r\nIdempotency-Key: broken\r\nConnection: close\r\n\r\n"
    with socket.create_connection((HOST, port), timeout=10) as connection:
        connection.sendall(head.encode() + chunks)
        return int(connection.makefile("rb").readline().split()[1])


WHOLE = b"hello, server"
BROKEN = {
    ("HTTP/1.1", "Content-Length: 13"): [b"hello", b"", WHOLE],
    ("HTTP/1.0", "Content-Length: 13"): [b"hello", b"", WHOLE],
    ("HTTP/1.1", "Transfer-Encoding: chunked"): [
        b"5\r\nhello\r\n",
        b"9\r\nhello",
        b"5\r\nhello\r\nzz\r\n",
        b"d\r\nhello, server\r\n0\r\n\r\n",
    ],
}
"""Parts of a body, and the whole of it."""


def upload(port, path, how, body, token):
    """Send a request, and no more after that; return the status, or None for no answer."""
    protocol, length = how
    lines = [f"POST /upload/{path} {protocol}", "Host: shop.example", length]
    lines += [f"Idempotency-Key: {protocol[-1]}{length[0]}", f"Idempotence-Token: {token}"]
    with socket.create_connection((HOST, port), timeout=10) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        connection.shutdown(socket.SHUT_WR)
        words = connection.makefile("rb").readline().split()
    return int(words[1]) if words else None


def check_uploads(port):
    for how, (*parts, whole) in BROKEN.items():
        for path, repeat in (("key", 200), ("token", 409), ("lock", 409)):
            token = json.loads(ask(port, "/token", method="GET")[1])["token"]
            sent = [*parts, whole, whole]
            statuses = [upload(port, path, how, body, token) for body in sent]
            assert set(statuses[:-2]) <= {400, None}, (how, path)
            assert statuses[-2:] == [200, repeat], (how, path)


def votes(port, *headers):
    return [ask(port, "/vote", [header])[0] for header in headers]


UNDERSCORES = [("X_Real_IP", "192.0.2.1"), ("X_Real_IP", "192.0.2.2")]


def check(port):
    # Dropped: both votes are from one address.
    assert votes(port, *UNDERSCORES) == [200, 409]
    assert votes(port, ("X-Real-IP", "192.0.2.1"), ("X-Real-IP", "192.0.2.2")) == [200, 200]
    headers = {"Idempotency-Key": "k", "Transfer-Encoding": "chunked"}
    bodies = [(b"on", b"e"), (b"o", b"ne"), (b"two",)]
    answers = [ask(port, "/pay", headers.items(), body) for body in bodies]
    assert [status for status, _ in answers] == [200, 200, 422]
    assert [body for _, body in answers[:2]] == [b"one", b"one"]
    assert [send_chunks(port, path, b"zz\r\n") for path in ("/pay", "/vote", "/spend")] == [
        400
    ] * 3


@pytest.mark.servers
@pytest.mark.gunicorn
def test_gunicorn_drops_headers_with_an_underscore_and_passes_chunks_on(tmp_path):
    (tmp_path / "shop.py").write_text(APP)
    with Gunicorn("shop:app", workers=1, cwd=tmp_path) as server:
        check(server.port)
        check_uploads(server.port)


@pytest.mark.servers
@pytest.mark.gunicorn
def test_gunicorn_counts_them_where_it_is_told_to(tmp_path):
    (tmp_path / "shop.py").write_text(APP)
    extra = ["--header-map=dangerous"]
    with Gunicorn("shop:app", workers=1, cwd=tmp_path, extra=extra) as server:
        assert votes(server.port, *UNDERSCORES) == [200, 200]


def test_werkzeug_drops_headers_with_an_underscore_and_passes_chunks_on():
    class Quiet(WSGIRequestHandler):
        def log(self, *arguments):
            pass

    module = {}
    exec(APP, module)
    server = make_server(HOST, 0, module["app"], threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        check(server.port)
        check_uploads(server.port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
