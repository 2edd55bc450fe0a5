"""A view reads its body as if no guard had."""

import io
import json
from itertools import islice

import pytest
from flask import Response, request
from flask.json.provider import DefaultJSONProvider
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

from flask_idempotence import idempotent, no_repeat_submit, one_time_token
from flask_idempotence.request.body import IN_MEMORY
from flask_idempotence.request.fingerprint import LONGEST_JSON

pytestmark = pytest.mark.usefixtures("no_collection")


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
    "JSON, not cached": lambda: request.get_json(cache=False),
    "JSON, twice, and the data": lambda: (request.json, request.get_json(), data()),
    "data, then JSON": lambda: (data(), request.get_json()),
    "values": lambda: request.values,
    "mounted": mounted,
}


JSON_READERS = [how for how in READERS if "JSON" in how]
TEXTS = (
    *(b'{"a": 1, "b": [2, "x"], "c": null}', b'{"a": 0.1, "b": 1e5, "c": -0.0}'),
    *(b'{"a": 0.12345678901234567890123}', b'{"a": 123456789012345678901234567890}'),
    *(b'{"a": NaN, "b": Infinity}', b'{"a": 1, "a": 2}', b'{"a": "\\ud800"}'),
    *(b'\xef\xbb\xbf{"a": 1}', '{"a": "é"}'.encode("utf-16"), '{"a": "ü"}'.encode("utf-32-be")),
    *(b" \n[1]\n", b"null", b'{"a": ', b'{"a": 1} 2', b"[" * 5000),
)
KINDS = BODIES | {f"JSON {number}": (JSON, text) for number, text in enumerate(TEXTS)}


def look_at_the_form():
    request.form.get("csrf_token")


def sign_and_look():
    request.get_data()
    look_at_the_form()


NO_TOKEN = {"Idempotence-Token": "none that a view asks for"}


def app_of_readers(guard):
    """Make an application that answers what a reader, which the query names, has returned."""

    def view():
        try:
            return repr(READERS[request.args["how"]]())
        except Exception as error:
            return repr(error)

    return app_with(view, guard)


@pytest.mark.parametrize("chunked", [False, True], ids=["with length", "chunked"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_view_reads_what_it_reads_without_a_guard(kind, chunked):
    content_type, body = KINDS[kind]
    guards = {"none": None, **GUARDS}
    apps = {name: app_of_readers(guard) for name, guard in guards.items()}
    for how in READERS if kind in BODIES else JSON_READERS:
        sent = {"path": f"/?how={how}", "chunked": chunked, "Idempotency-Key": f'"{how}"'}
        answers = [
            post(app, body, content_type, **sent, **({} if name == "token" else NO_TOKEN))
            for name, app in apps.items()
        ]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.data for answer in answers}) == 1, how


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


@pytest.mark.parametrize("length", NO_LENGTHS)
def test_what_is_no_length_to_werkzeug_is_none_to_a_guard(length):
    for guard in (None, GUARDS["lock"], GUARDS["key"]):
        app = app_with(lambda: {"body": request.get_data(as_text=True)}, guard)
        answer = send(app, b"12345", BYTES, {"CONTENT_LENGTH": length}, {"Idempotency-Key": "k"})
        assert (answer.status_code, answer.json) == (200, {"body": ""})


class TestUnknownLength:
    def send(self, app, environ, *, content_type=BYTES, body=b"hello", **headers):
        return send(app, body, content_type, environ, {"Idempotency-Key": "k", **headers})

    @pytest.mark.parametrize("hook", [None, look_at_the_form])
    @pytest.mark.parametrize("server", WITHOUT_LENGTH)
    @pytest.mark.parametrize("content_type", [BYTES, JSON, FORM, PARTS])
    @pytest.mark.parametrize("guard", ["lock", "key", "token"])
    def test_it_is_refused_with_what_to_do(self, guard, content_type, server, hook):
        if guard == "token" and content_type in (BYTES, JSON):
            return  # only a form may hold a token
        runs = []
        app = app_with(lambda: runs.append(1) or {}, GUARDS[guard])
        app.before_request(hook or (lambda: None))
        answer = self.send(app, WITHOUT_LENGTH[server], content_type=content_type)
        assert (answer.status_code, runs) == (411, [])
        assert "with a Content-Length" in answer.get_data(as_text=True)

    @pytest.mark.parametrize("guard", [no_repeat_submit(60, key=lambda: 1), one_time_token()])
    def test_it_passes_where_the_body_does_not_count(self, guard):
        app = app_with(nothing, guard)
        headers = {"Idempotence-Token": app.test_client().get("/token").json["token"]}
        assert self.send(app, WITHOUT_LENGTH["uWSGI"], **headers).status_code == 200

    @pytest.mark.parametrize("environ", [
        {"SERVER_PROTOCOL": "HTTP/1.1"},
        {"SERVER_PROTOCOL": "HTTP/2", "CONTENT_TYPE": ""},
        {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True},
    ])  # fmt: skip
    @pytest.mark.parametrize("guard", ["lock", "key"])
    def test_a_request_without_a_body_or_with_its_end_known_passes(self, guard, environ):
        app = app_with(nothing, GUARDS[guard])
        statuses = [self.send(app, environ, body=b"").status_code for _ in range(2)]
        assert statuses == [200, 409 if guard == "lock" else 200]


class TestReadBefore:
    @pytest.mark.parametrize("kind", ["JSON", "a form", "a file", "many bytes"])
    def test_a_form_that_a_csrf_check_has_parsed(self, kind):
        def view():
            return repr((request.get_data(), dict(request.form), files()))

        seen = set()
        for guard in (None, GUARDS["lock"], GUARDS["key"]):
            app = app_with(view, guard)
            app.before_request(look_at_the_form)
            seen.add(post(app, *BODIES[kind][::-1]).data)
        assert len(seen) == 1

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
        for guard, expected in (("key", [200, 200, 422]), ("lock", [200, 409, 200])):
            app = app_with(data, GUARDS[guard])
            app.before_request(hook)
            sent = (body, body, other)
            answers = [post(app, each, content_type, chunked=chunked) for each in sent]
            assert [answer.status_code for answer in answers] == expected
            assert answers[0].data == body

    def test_a_form_without_fields_that_was_parsed_is_one_request(self):
        app = app_with(nothing, GUARDS["lock"])
        app.before_request(look_at_the_form)
        answers = [post(app, b"--x--\r\n", PARTS) for _ in "12"]
        assert [answer.status_code for answer in answers] == [200, 409]


def test_the_value_that_the_application_has_parsed_before_stays():
    seen = []
    app = app_with(lambda: seen.append(request.get_json()) or {}, GUARDS["lock"])
    app.before_request(lambda: seen.append(request.get_json(silent=True)))
    post(app, b'{"a": 1}', JSON)
    assert seen[-2] == {"a": 1}
    assert seen[-2] is seen[-1]


def test_a_body_that_is_replaced_between_two_guards_is_compared_anew():
    inner = idempotent()(lambda: ("not found", 404))  # remembered, and its lock is released

    def replacing():
        body = request.headers["X-Body"].encode()
        request.environ |= {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        return inner()

    app = app_with(replacing, no_repeat_submit(60))
    answers = [post(app, b"packed", BYTES, **{"X-Body": text}) for text in ("one", "one", "two")]
    assert [answer.status_code for answer in answers] == [404, 404, 422]


# JSON that the guard has parsed


def keep_what_is_read(seen):
    def view():
        value = request.get_json()
        seen.append(json.dumps(value))
        value["a"].append("altered")
        return {"again": request.get_json(cache=False)}

    return view


@pytest.mark.parametrize("guard", ["lock", "key", "key in lock", "token"])
def test_what_a_view_alters_nobody_else_sees(guard):
    """The view is given the value that the guard has parsed, and only once."""
    seen = []
    app = app_with(keep_what_is_read(seen), GUARDS[guard])
    sent = b'{"a": [1, 2.5, "x"]}'
    answers = [post(app, sent, JSON, **{"Idempotency-Key": key}) for key in ("1", "1", "2")]
    assert set(seen) == {'{"a": [1, 2.5, "x"]}'}
    assert answers[0].json == {"again": {"a": [1, 2.5, "x"]}}
    # A repeat is recognised by what was sent.
    assert [answer.status_code for answer in answers[:2]] in ([200, 409], [200, 200])
    assert len(seen) < 3 or guard == "token"


def test_the_value_is_parsed_once_by_guard_and_view(monkeypatch):
    parsed = []
    plain = DefaultJSONProvider.loads

    def loads(self, text, **options):
        parsed.append(text)
        return plain(self, text, **options)

    monkeypatch.setattr(DefaultJSONProvider, "loads", loads)
    app = app_with(lambda: request.get_json(), GUARDS["key"])  # noqa: PLW0108
    sent = [b'{"a": 1}', b'{"a": 1.50}']
    for number, text in enumerate(sent):
        length = {"CONTENT_LENGTH": str(len(text))}
        answer = send(app, text, JSON, length, {"Idempotency-Key": str(number)})
        assert answer.status_code == 200
    assert parsed == sent[1:]  # which a double does not hold as it is written


class Reading(DefaultJSONProvider):
    """A provider that reads JSON in its own way."""

    def loads(self, text, **options):
        return {"own": super().loads(text, **options)}


@pytest.mark.parametrize("way", ["a class", "an instance"])
@pytest.mark.parametrize("guard", ["lock", "key"])
def test_a_provider_of_the_application_reads_in_its_own_way(guard, way):
    app = app_with(lambda: request.get_json(), GUARDS[guard])  # noqa: PLW0108
    reading = Reading(app)
    if way == "a class":
        app.json = reading
    else:
        app.json.loads = reading.loads
    answer = send(app, b'{"a": 1}', JSON, {"CONTENT_LENGTH": "8"}, {"Idempotency-Key": "k"})
    assert json.loads(answer.data) == {"own": {"a": 1}}


def means_the_same(guard, size):
    """Whether two JSON texts of this size are one request, which differ only in their order."""
    app = app_with(nothing, guard)
    fill = "x" * (size - len('{"a": 1, "b": ""}'))
    sent = (f'{{"a": 1, "b": "{fill}"}}', f'{{"b": "{fill}", "a": 1}}')
    assert {len(text) for text in sent} == {size}
    statuses = [post(app, text.encode(), JSON).status_code for text in sent]
    return {(200, 200): True, (200, 422): False}[tuple(statuses)]


@pytest.mark.parametrize(
    ("guard", "most"),
    [
        (idempotent(), LONGEST_JSON),
        (idempotent(ignore=["c"]), IN_MEMORY),
    ],
)
def test_json_counts_by_its_meaning_up_to_a_number_of_bytes(guard, most):
    assert means_the_same(guard, most)
    assert not means_the_same(guard, most + 1)


@pytest.mark.parametrize("chosen", [{"only": ["a"]}, {"ignore": ["c"]}])
def test_a_lock_that_chooses_arguments_reads_longer_json(chosen):
    app = app_with(nothing, no_repeat_submit(60, **chosen))
    sent = [b'{"a": 1, "c": "%b"}' % (b"x" * (LONGEST_JSON + more)) for more in (0, 0)]
    assert [post(app, text, JSON).status_code for text in sent] == [200, 409]
