"""What Werkzeug's server makes of a request: headers with an underscore, chunks, half a body.

The tests marked wsgi ask the same of servers that others wrote.
"""

import http.client
import json
import socket
import threading

import pytest
from helpers.request_bodies import FORM, JSON, PARTS, part
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
runs = []


def upload():
    return request.get_data()


GUARDS = {
    "vote": no_repeat_submit(60),
    "pay": idempotent(),
    "spend": one_time_token,
    "key": idempotent(compare=False),
    "lock": no_repeat_submit(60, key=lambda: request.headers["Idempotency-Key"]),
}
for name, guard in GUARDS.items():
    app.add_url_rule(f"/{name}", name, guard(upload), methods=["POST"])


@app.post("/form")
@idempotent()
def form():
    runs.append(request.form.to_dict() or request.json)
    return {"run": len(runs), "body": runs[-1]}
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


def send(port, path, protocol, *lines, body=b""):
    """Send a request, and no more after that; return the status and the body, or None."""
    head = [f"POST {path} {protocol}", "Host: shop.example", "Connection: close", *lines, "", ""]
    with socket.create_connection((HOST, port), timeout=10) as connection:
        connection.sendall("\r\n".join(head).encode() + body)
        connection.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(connection)
        try:
            answer.begin()
        except http.client.HTTPException:
            return None, b""
        return answer.status, answer.read()


class Quiet(WSGIRequestHandler):
    def log(self, *arguments):
        pass


@pytest.fixture(scope="module")
def port():
    """The port of the application above under Werkzeug's own server."""
    exec(APP, module := {})
    server = make_server(HOST, 0, module["app"], threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def votes(port, *headers):
    return [ask(port, "/vote", [header])[0] for header in headers]


UNDERSCORES = [("X_Real_IP", "192.0.2.1"), ("X_Real_IP", "192.0.2.2")]


def test_headers_with_an_underscore_are_dropped(port):
    assert votes(port, *UNDERSCORES) == [200, 409]  # both votes are from one address
    assert votes(port, ("X-Real-IP", "192.0.2.1"), ("X-Real-IP", "192.0.2.2")) == [200, 200]


@pytest.mark.servers
def test_gunicorn_counts_them_where_it_is_told_to(tmp_path):
    (tmp_path / "shop.py").write_text(APP)
    extra = ["--header-map=dangerous"]
    with Gunicorn("shop:app", workers=1, cwd=tmp_path, extra=extra) as server:
        assert votes(server.port, *UNDERSCORES) == [200, 200]


@pytest.mark.parametrize("keys", [("a", "b"), ("a", '"a"'), ("a", "")])
def test_several_lines_with_a_key_are_invalid(port, keys):
    status, body = ask(port, "/pay", [("Idempotency-Key", key) for key in keys])
    assert (status, b"key-invalid" in body) == (400, True)


def test_a_body_in_chunks_is_read(port):
    headers = {"Idempotency-Key": "k", "Transfer-Encoding": "chunked"}
    bodies = [(b"on", b"e"), (b"o", b"ne"), (b"two",)]
    answers = [ask(port, "/pay", headers.items(), body) for body in bodies]
    assert [status for status, _ in answers] == [200, 200, 422]
    assert [body for _, body in answers[:2]] == [b"one", b"one"]
    lines = ["Transfer-Encoding: chunked", f"Content-Type: {FORM}", "Idempotency-Key: broken"]
    for path in ("/pay", "/vote", "/spend"):
        assert send(port, path, "HTTP/1.1", *lines, body=b"zz\r\n")[0] == 400


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


@pytest.mark.parametrize(("path", "repeat"), [("/key", 200), ("/spend", 409), ("/lock", 409)])
@pytest.mark.parametrize("how", BROKEN, ids=str)
def test_what_broke_off_while_a_view_read_it_may_be_sent_again(port, how, path, repeat):
    protocol, length = how
    *parts, whole = BROKEN[how]
    token = json.loads(ask(port, "/token", method="GET")[1])["token"]
    lines = [length, f"Idempotency-Key: {protocol[-1]}{length[0]}", f"Idempotence-Token: {token}"]
    sent = [*parts, whole, whole]
    statuses = [send(port, path, protocol, *lines, body=body)[0] for body in sent]
    assert set(statuses[:-2]) <= {400, None}
    assert statuses[-2:] == [200, repeat]


FIELDS = part("to", "alice") + part("amount", "1000") + b"--x--\r\n"
UPLOADS = [(JSON, b'{"to": "alice", "amount": "1000"}', 20), (FORM, b"to=alice&amount=1000", 18)]
UPLOADS += [(PARTS, FIELDS, 70), (JSON, b'{"to": "alice", "amount": "1000"}', 0)]


@pytest.mark.parametrize(("content_type", "body", "cut"), UPLOADS)
def test_a_client_that_goes_away_in_mid_upload_leaves_no_claim(port, content_type, body, cut):
    lines = [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    lines.append(f"Idempotency-Key: {cut}")
    runs = [
        send(port, "/form", "HTTP/1.1", *lines, body=sent) for sent in (body[:cut], body, body)
    ]
    assert [status for status, _ in runs] == [400, 200, 200]
    assert runs[1] == runs[2]  # the whole of it was sent with the same key
    assert json.loads(runs[1][1])["body"] == {"to": "alice", "amount": "1000"}
