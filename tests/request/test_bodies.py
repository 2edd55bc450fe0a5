"""A view reads its body as if no guard had."""

import asyncio
from decimal import Decimal
from itertools import islice
from typing import ClassVar

import pytest
from asgiref.wsgi import WsgiToAsgi
from flask import Response, request
from flask.json.provider import DefaultJSONProvider
from helpers.apps import make_app
from helpers.request_bodies import (
    BODIES,
    BYTES,
    FORM,
    GUARDS,
    JSON,
    PARTS,
    app_with,
    nothing,
    part,
    post,
    send,
)
from werkzeug.wrappers import Request as PlainRequest

from flask_idempotence import no_repeat_submit, one_time_token
from flask_idempotence.request.body import IN_MEMORY


def data():
    return request.get_data()


def mounted():
    """Hand the request on to another WSGI application."""

    def other(environ, start_response):
        with PlainRequest(environ) as inner:
            answer = Response(repr((inner.form, list(inner.files), inner.get_data())))
        return answer(environ, start_response)

    return Response.from_app(other, request.environ).get_data()


def files():
    return {name: (file.filename, file.read()) for name, file in request.files.items()}


READERS = {
    "data": data,
    "data, twice": lambda: (request.get_data(cache=False), request.get_data()),
    "stream": lambda: request.stream.read(-1),
    "lines": lambda: [request.stream.readline(50) for _ in range(3)],
    "input": lambda: request.environ["wsgi.input"].read(request.content_length or 0),
    "lines of the input": lambda: list(islice(request.environ["wsgi.input"], 3)),
    "a part, then all": lambda: (request.stream.read(3), request.get_data()),
    "a part, then the form": lambda: (request.stream.read(3), request.form),
    "form": lambda: (request.form, files()),
    "form, then data": lambda: (request.form, request.get_data()),
    "data, then form": lambda: (request.get_data(), request.form, files()),
    "JSON": lambda: request.get_json(silent=True),
    "values": lambda: request.values,
    "mounted": mounted,
}


def look_at_the_form():
    request.form.get("csrf_token")


def keep_the_data():
    request.get_data()


def sign_and_look():
    keep_the_data()
    look_at_the_form()


def app_of_readers(guard, seen):
    """Make an application with a route for each reader, which appends its result."""

    def view_of(read):
        def view():
            try:
                seen.append(read())
            except Exception as error:
                seen.append(repr(error))
            return {}

        return view

    app = make_app()
    for how, read in READERS.items():
        view = guard(view_of(read)) if guard else view_of(read)
        app.add_url_rule(f"/{how}", how, view, methods=["POST"])
    return app


@pytest.mark.parametrize("chunked", [False, True], ids=["with length", "chunked"])
@pytest.mark.parametrize("kind", BODIES)
def test_a_view_reads_what_it_reads_without_a_guard(kind, chunked):
    content_type, body = BODIES[kind]
    seen = []
    apps = [app_of_readers(guard, seen) for guard in (None, *GUARDS.values())]
    for how in READERS:
        seen.clear()
        for app in apps:
            post(app, body, content_type, path=f"/{how}", chunked=chunked)
        assert len(seen) == len(GUARDS) + 1
        assert all(value == seen[0] for value in seen), how


# What these servers pass on of a chunked request, or of one of HTTP/2 without a length.
WITHOUT_LENGTH = {
    "uWSGI": {"HTTP_TRANSFER_ENCODING": "chunked", "SERVER_PROTOCOL": "HTTP/1.1"},
    "in other letters": {"HTTP_TRANSFER_ENCODING": "gzip, Chunked", "SERVER_PROTOCOL": "HTTP/1.1"},
    "an adapter that says so": {
        "HTTP_TRANSFER_ENCODING": "chunked",
        "wsgi.input_terminated": False,
    },
    "Hypercorn, HTTP/2": {"SERVER_PROTOCOL": "HTTP/2"},
}


# Texts in which Werkzeug sees no length; some adapters put None in the place of a missing one.
NO_LENGTHS = [None, "", "+5", "\N{FULLWIDTH DIGIT FIVE}", "1e3", "x"]


@pytest.mark.parametrize("guard", ["lock", "key"])
@pytest.mark.parametrize("length", NO_LENGTHS)
def test_what_is_no_length_to_werkzeug_is_none_to_a_guard(length, guard):
    found = []
    for each in (None, GUARDS[guard]):

        def view():
            return {"body": request.get_data(as_text=True)}

        app = app_with(view, each)
        environ = {"CONTENT_LENGTH": length}
        answer = send(app, b"12345", BYTES, environ, {"Idempotency-Key": "k"})
        found.append((answer.status_code, answer.json))
    assert found == [(200, {"body": ""})] * 2


class TestUnknownLength:
    def send(self, app, environ, *, content_type=BYTES, body=b"hello", **headers):
        return send(app, body, content_type, environ, {"Idempotency-Key": "k", **headers})

    @pytest.mark.parametrize("server", WITHOUT_LENGTH)
    @pytest.mark.parametrize("content_type", [BYTES, JSON, FORM, PARTS])
    @pytest.mark.parametrize("guard", ["lock", "key"])
    def test_it_is_refused_with_what_to_do(self, guard, content_type, server):
        runs = []
        app = app_with(lambda: runs.append(1) or {}, GUARDS[guard])
        answer = self.send(app, WITHOUT_LENGTH[server], content_type=content_type)
        assert (answer.status_code, runs) == (411, [])
        assert "with a Content-Length" in answer.get_data(as_text=True)

    @pytest.mark.parametrize("server", WITHOUT_LENGTH)
    @pytest.mark.parametrize("content_type", [FORM, PARTS])
    def test_so_is_a_form_that_may_hold_a_token(self, content_type, server):
        app = app_with(nothing, one_time_token())
        answer = self.send(app, WITHOUT_LENGTH[server], content_type=content_type)
        assert answer.status_code == 411

    def test_it_is_refused_also_where_the_application_has_looked_at_the_form_before(self):
        app = app_with(nothing, GUARDS["key"])
        app.before_request(look_at_the_form)
        for content_type in (BYTES, JSON, FORM, PARTS):
            answer = self.send(app, WITHOUT_LENGTH["uWSGI"], content_type=content_type)
            assert answer.status_code == 411

    def test_it_passes_where_the_body_does_not_count(self):
        token = one_time_token()
        for guard in (no_repeat_submit(60, key=lambda: 1), token):
            app = app_with(nothing, guard)
            headers = {"Idempotence-Token": app.test_client().get("/token").json["token"]}
            assert self.send(app, WITHOUT_LENGTH["uWSGI"], **headers).status_code == 200

    @pytest.mark.parametrize("environ", [
        {"SERVER_PROTOCOL": "HTTP/1.1"},
        {"SERVER_PROTOCOL": "HTTP/2", "CONTENT_TYPE": ""},
        {"SERVER_PROTOCOL": "HTTP/1.1", "HTTP_TRANSFER_ENCODING": "chunked",
         "wsgi.input_terminated": True},
    ])  # fmt: skip
    @pytest.mark.parametrize("guard", ["lock", "key"])
    def test_a_request_without_a_body_or_with_its_end_known_passes(self, guard, environ):
        app = app_with(nothing, GUARDS[guard])
        assert self.send(app, environ, body=b"").status_code == 200

    def test_an_asgi_adapter_that_drops_chunked_bodies_replays_nothing(self):
        app = app_with(data, GUARDS["key"])
        asgi, statuses = WsgiToAsgi(app), []

        async def ask(body, *headers):
            sent = [(b"idempotency-key", b"k"), (b"content-type", b"text/plain"), *headers]
            scope = {
                "type": "http", "method": "POST", "path": "/", "query_string": b"",
                "http_version": "1.1", "headers": sent, "root_path": "",
            }  # fmt: skip

            async def receive():
                return {"type": "http.request", "body": body, "more_body": False}

            async def send(message):
                statuses.append(message.get("status"))

            await asgi(scope, receive, send)

        async def ask_all():
            await ask(b"one", (b"transfer-encoding", b"chunked"))
            await ask(b"two", (b"transfer-encoding", b"chunked"))
            await ask(b"one", (b"content-length", b"3"))
            await ask(b"two", (b"content-length", b"3"))

        asyncio.run(ask_all())
        assert [status for status in statuses if status] == [411, 411, 200, 422]


class TestReadBefore:
    @pytest.mark.parametrize("guard", ["lock", "key"])
    @pytest.mark.parametrize("kind", ["JSON", "a form", "a file", "many bytes"])
    def test_a_form_that_a_csrf_check_has_parsed(self, kind, guard):
        content_type, body = BODIES[kind]
        seen = []

        def view():
            seen.append((request.get_data(), dict(request.form), files()))
            return {}

        for each in (None, GUARDS[guard]):
            app = app_with(view, each)
            app.before_request(look_at_the_form)
            assert post(app, body, content_type).status_code == 200
        assert seen[0] == seen[1]

    def test_data_that_a_signature_check_has_kept(self):
        app = app_with(data, GUARDS["key"])
        app.before_request(keep_the_data)
        answers = [post(app, body, JSON) for body in (b"[1]", b"[ 1]", b"[2]")]
        assert [answer.status_code for answer in answers] == [200, 200, 422]
        assert answers[0].data == b"[1]"

    @pytest.mark.parametrize("chunked", [False, True], ids=["with length", "chunked"])
    @pytest.mark.parametrize(
        ("content_type", "body", "hook"),
        [
            ("multipart/form-data", b"--x one", look_at_the_form),
            ("multipart/form-data; boundary=\xe9", b"--x one", look_at_the_form),
            (PARTS, part("a", "1") + b"--x one", sign_and_look),
            (FORM, b"a=\xff&b=one", sign_and_look),
        ],
    )
    def test_what_no_parser_took_for_a_form_is_told_apart_by_its_bytes(
        self, content_type, body, hook, chunked
    ):
        other = body.replace(b"one", b"two")
        seen = []
        for guard, expected in (("key", [200, 200, 422]), ("lock", [200, 409, 200])):
            app = app_with(lambda: seen.append(request.get_data()) or {}, GUARDS[guard])
            app.before_request(hook)
            answers = [
                post(app, each, content_type, chunked=chunked) for each in (body, body, other)
            ]
            assert [answer.status_code for answer in answers] == expected
        assert seen == [body, body, other]

    def test_a_form_without_fields_that_was_parsed_is_one_request(self):
        app = app_with(nothing, GUARDS["lock"])
        app.before_request(look_at_the_form)
        answers = [post(app, b"--x--\r\n", PARTS) for _ in "12"]
        assert [answer.status_code for answer in answers] == [200, 409]


@pytest.mark.parametrize("only", [None, {"b"}])
def test_a_form_that_is_too_long_to_be_parsed_is_compared_whole(only):
    app = app_with(nothing, no_repeat_submit(60, only=only))
    long = b"a=" + b"x" * IN_MEMORY
    answers = [post(app, long + end, FORM) for end in (b"1", b"1", b"2")]
    assert [answer.status_code for answer in answers] == [200, 409, 200]


def read_json():
    return request.get_json()


class TestParsedJson:
    """A view parses JSON as if no guard had."""

    TEXTS = (
        b'{"a": 1, "b": [2, "x"], "c": null}',
        b'{"a": 0.1, "b": 1e5, "c": -0.0}',
        b'{"a": 0.12345678901234567890123}',
        b'{"a": NaN, "b": Infinity}',
        b'{"a": 123456789012345678901234567890}',
        b'{"a": 1, "a": 2}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": "é"}'.encode("utf-16"),
        '{"a": "ü"}'.encode("utf-32-be"),
        b'{"a": "\\ud800"}',
        b" \n[1]\n",
        b"null",
        b'{"a": ',
        b'{"a": 1} 2',
        b"[" * 5000,
    )
    READERS: ClassVar = {
        "get_json": read_json,
        "json": lambda: request.json,
        "silent": lambda: request.get_json(silent=True),
        "not cached": lambda: request.get_json(cache=False),
        "twice": lambda: (request.get_json(), request.get_json(), request.get_json(silent=True)),
        "and the data": lambda: (request.get_json(), request.get_data()),
        "behind the data": lambda: (request.get_data(), request.get_json()),
    }

    @pytest.mark.parametrize("guard", ["lock", "key", "key in lock"])
    @pytest.mark.parametrize("how", READERS)
    def test_a_view_gets_the_value_that_it_would_parse(self, how, guard):
        def make_app(guard):
            def view():
                try:
                    return repr(self.READERS[how]())
                except RecursionError:
                    return "too deep"

            return app_with(view, guard)

        apps = make_app(None), make_app(GUARDS[guard])
        for number, text in enumerate(self.TEXTS):
            key = {"Idempotency-Key": str(number)}
            without, behind = (post(app, text, JSON, **key) for app in apps)
            assert (behind.status_code, behind.data) == (without.status_code, without.data), text

    @pytest.mark.parametrize("where", ["in a subclass", "on the provider"])
    def test_the_applications_own_parser_is_used(self, where):
        class Exact(DefaultJSONProvider):
            def loads(self, text, **options):
                return super().loads(text, parse_int=Decimal, **options)

        seen = []
        app = app_with(lambda: seen.append(request.get_json()) or {}, GUARDS["lock"])
        if where == "in a subclass":
            app.json = Exact(app)
        else:
            app.json.loads = Exact(app).loads
        post(app, b'{"a": 1}', JSON)
        assert repr(seen) == repr([{"a": Decimal(1)}])

    def test_the_value_that_the_application_has_parsed_before_stays(self):
        seen = []
        app = app_with(lambda: seen.append(request.get_json()) or {}, GUARDS["lock"])

        @app.before_request
        def parse():
            seen.append(request.get_json(silent=True))

        post(app, b'{"a": 1}', JSON)
        assert seen[-2:] == [{"a": 1}] * 2
        assert seen[-2] is seen[-1]
