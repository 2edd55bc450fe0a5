"""Keys that look alike and are not, and bodies that are not what they were."""

import pytest
from flask import g, request
from helpers.apps import make_app, verdict
from helpers.servers.processes import RedisServer

from flask_idempotence import ConfigurationError, idempotent

KEY = {"Idempotency-Key": "k"}
MULTIPART = "multipart/form-data; boundary=b"


def part(amount):
    return (
        f"--b\r\nContent-Disposition: form-data; name=amount\r\n\r\n{amount}\r\n--b--\r\n".encode()
    )


@pytest.mark.parametrize("scheme", ["Token {}", 'Digest username="{}"', "{}"])
def test_users_behind_one_address_are_told_apart_by_credentials_of_any_scheme(scheme):
    app = make_app()

    @app.post("/")
    @idempotent()
    def view():
        return request.headers["Authorization"]

    sent = [{**KEY, "Authorization": scheme.format(name)} for name in ("ann", "bob", "ann")]
    answers = [app.test_client().post("/", headers=headers) for headers in sent]
    assert [answer.text for answer in answers] == [each["Authorization"] for each in sent]
    replayed = [answer.headers.get("Idempotent-Replayed") for answer in answers]
    assert replayed == [None, None, "true"]


def test_another_path_to_the_same_endpoint_is_another_request():
    app, runs = make_app(), []

    @app.post("/in")
    @app.post("/out")
    @idempotent()
    def move():
        runs.append(request.path)
        return request.path

    codes = [app.test_client().post(path, headers=KEY).status_code for path in ("/in", "/out")]
    assert (codes, runs) == ([200, 422], ["/in"])


@pytest.mark.parametrize("read", ["data", "stream"])
@pytest.mark.parametrize(
    ("content_type", "body"),
    [(MULTIPART, part(5)), ("application/x-www-form-urlencoded", b"amount=5")],
)
def test_a_form_that_somebody_else_has_eaten_is_noticed(read, content_type, body):
    app = make_app()

    @app.before_request
    def eat():
        g.raw = request.get_data(cache=False) if read == "data" else request.stream.read()

    @app.post("/")
    @idempotent()
    def view():
        return "done"

    with pytest.raises(ConfigurationError, match="was read before its guard"):
        app.test_client().post("/", headers=KEY, data=body, content_type=content_type)


def test_a_form_that_somebody_else_has_read_and_kept_is_compared():
    app = make_app()

    @app.before_request
    def read():
        request.get_data()

    @app.post("/")
    @idempotent()
    def view():
        return request.form["amount"]

    client = app.test_client()
    sent = [part(5), part(5), part(900)]
    answers = [client.post("/", headers=KEY, data=b, content_type=MULTIPART) for b in sent]
    assert [verdict(answer) for answer in answers] == [200, "replay of 200", "key-reused"]


@pytest.mark.parametrize(
    "value", [b"", b"garbage", b"C", b"C" + bytes(32) + b"abc", b"D", b"\x80"]
)
def test_a_value_that_is_none_of_ours_is_done_and_unreadable(fresh_redis: RedisServer, value):
    app = make_app(IDEMPOTENCE_STORAGE_URI=fresh_redis.url)

    @app.post("/")
    @idempotent()
    def view():
        return "done"

    client, behind = app.test_client(), fresh_redis.client()
    assert client.post("/", headers=KEY).status_code == 200
    [name] = behind.keys()
    behind.set(name, value)
    found = [verdict(client.post("/", headers=KEY)) for _ in range(2)]
    assert set(found) <= {"response-not-stored", "key-reused"}
