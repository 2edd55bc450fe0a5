"""Requests that servers, proxies and hooks have had their hands on."""

import gzip
import io
import json

import pytest
from flask import request
from helpers.apps import make_app
from helpers.keeper_harness import leased_claim
from helpers.request_bodies import FORM, JSON, PARTS, part
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client

from flask_idempotence import (
    ConfigurationError,
    MemoryStore,
    RedisStore,
    idempotent,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Running
from flask_idempotence.testing import FakeClock

GUARDS = {
    "lock": no_repeat_submit(60),
    "lock by function": no_repeat_submit(60, key=lambda: request.headers["Idempotency-Key"]),
    "key": idempotent(),
    "key alone": idempotent(compare=False),
    "at-most-once": idempotent(compare=False, guarantee="at-most-once"),
}


def guarded_app(guard=None, view=None, **settings):
    app = make_app(**settings)

    @app.post("/")
    @(guard or no_repeat_submit(60))
    def order():
        return view() if view is not None else {}

    return app


def test_one_application_at_two_places_keeps_their_requests_apart():
    app = guarded_app()
    mounted = DispatcherMiddleware(make_app(), {"/acme": app, "/globex": app})
    client = Client(mounted)
    codes = [client.post(f"{place}/").status_code for place in ("/acme", "/globex") * 2]
    assert codes == [200, 200, 409, 409]


def test_bytes_that_are_no_text_in_the_query_are_counted_as_they_are():
    client = guarded_app().test_client()

    def post(query):
        return client.post("/", environ_overrides={"QUERY_STRING": query}).status_code

    assert [post("a=\xff"), post("a=\xfe"), post("a=\xff")] == [200, 200, 409]
    issued = client.get("/token", environ_overrides={"QUERY_STRING": "purpose=\xff"})
    assert issued.status_code == 400


@pytest.mark.parametrize("read", ["get_data", "stream"])
def test_a_token_in_a_form_leaves_the_raw_body_to_the_view(read):
    seen = []

    def view():
        seen.append(request.get_data() if read == "get_data" else request.stream.read())
        return dict(request.form)

    client = guarded_app(one_time_token(), view).test_client()
    token = client.get("/token").json["token"]
    body = f"idempotence_token={token}&a=1"
    form = "application/x-www-form-urlencoded"
    answer = client.post("/", data=body, content_type=form)
    # As without a guard: of a stream that has been read, nothing is left for the form.
    assert answer.json.get("a") == ("1" if read == "get_data" else None)
    assert seen == [body.encode()]


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(
    ("content_type", "body"),
    [(JSON, b'{"a": 1}'), (FORM, b"a=1"), (PARTS, part("a", "1") + b"--x--\r\n")],
)
@pytest.mark.parametrize("read", ["stream", "data"])
def test_a_body_that_a_hook_has_eaten_is_an_error_and_no_repeat(read, content_type, body, chunked):
    app = guarded_app()

    @app.before_request
    def eat():
        _ = request.stream.read() if read == "stream" else request.get_data(cache=False)

    how = {"wsgi.input": io.BytesIO(body), "CONTENT_TYPE": content_type}
    if chunked:
        how |= {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    else:
        how |= {"CONTENT_LENGTH": str(len(body))}
    with pytest.raises(ConfigurationError, match="was read before its guard"):
        app.test_client().post("/", environ_overrides=how)


@pytest.mark.parametrize("place", ["stream", "environ"])
@pytest.mark.parametrize("guard", GUARDS)
def test_a_body_that_a_hook_decompresses_has_another_length_than_announced(guard, place):
    app = guarded_app(GUARDS[guard], lambda: request.json)

    @app.before_request
    def decompress():
        if place == "stream":
            request.stream = gzip.GzipFile(fileobj=request.stream)
        else:
            source = request.environ["wsgi.input"]
            request.environ["wsgi.input"] = gzip.GzipFile(fileobj=source)

    how = {"wsgi.input_terminated": True}  # as Gunicorn says
    for key, sent in {"short": {"a": 1}, "long": {"a": "x" * 3000}}.items():
        headers = {"Idempotency-Key": key}
        body = gzip.compress(json.dumps(sent).encode())
        answer = app.test_client().post(
            "/", data=body, content_type="application/json", headers=headers, environ_overrides=how
        )
        assert (answer.status_code, answer.json) == (200, sent)


def test_an_empty_chunked_body_is_nothing_special():
    how = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    client = guarded_app().test_client()
    codes = [client.post("/", environ_overrides=how).status_code for _ in range(2)]
    assert codes == [200, 409]


def test_the_encoding_of_a_ready_client_is_not_ours(redis_server, redis_url):
    with redis_server.client(encoding="utf-16") as client:
        app = make_app(store=RedisStore(client))
        app.add_url_rule("/é", "é", no_repeat_submit(60)(lambda: "done"), methods=["POST"])
        codes = [app.test_client().post("/é").status_code for _ in range(2)]
    assert codes == [200, 409]


def test_a_store_that_fails_at_one_key_keeps_no_other_lease_from_being_renewed():
    class Odd(MemoryStore):
        def renew(self, renewals):
            if any(renewal.key == "odd" for renewal in renewals):
                raise KeyError("a bug in the store")
            return super().renew(renewals)

    clock = FakeClock()
    store = Odd(clock=clock)
    app = make_app(store=store)
    clock.rule(app)
    keeper = app.extensions["idempotence"].engine.keeper
    keeper._schedule = lambda at: None
    for key in ("odd", "good"):
        hold = leased_claim(app, 1, clock(), key)
        assert store.claim(key, hold.owner, NO_FINGERPRINT, 1, 0) == Claimed()
        keeper.watch(hold)
    for _ in range(40):
        clock.advance(0.1)
        keeper.tick()
    assert isinstance(store.claim("good", b"r" * 16, NO_FINGERPRINT, 1, 0), Running)
    assert store.claim("odd", b"r" * 16, NO_FINGERPRINT, 1, 0) == Claimed()
