"""Whatever a client sends: no error of ours, no wrong verdict, nothing lost for the view."""

import decimal
import io
import json

import pytest
from flask import Flask, request
from flask.json.provider import DefaultJSONProvider
from helpers.apps import make_app

from flask_idempotence import (
    Idempotence,
    TokenInvalid,
    TokenSpent,
    no_repeat_submit,
    one_time_token,
)

DEEP = 100_000
LONE_SURROGATE = b'"\\ud800"'


@pytest.fixture(params=["memory", "redis"])
def store_uri(request):
    return "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")


class Site:
    """An application whose guarded view keeps what it reads."""

    def __init__(self, store_uri, view=None, **settings):
        self.idempotence = Idempotence()
        self.app = make_app(
            idempotence=self.idempotence, IDEMPOTENCE_STORAGE_URI=store_uri, **settings
        )
        self.seen = []

        def noted():
            self.seen.append(request.get_data() if view is None else view())
            return "done"

        for path, guard in [("/", no_repeat_submit(interval=60)), ("/spend", one_time_token())]:
            self.app.add_url_rule(path, path, guard(noted), methods=["POST"])

    def post(self, *bodies, path="/", **options):
        """Send the bodies one after the other and return the statuses."""
        client = self.app.test_client()
        return [client.post(path, data=body, **options).status_code for body in bodies]

    def token(self):
        return self.app.test_client().get("/token").json["token"]

    def spend(self, *tokens, path="/spend"):
        client = self.app.test_client()
        answers = [client.post(path, headers={"Idempotence-Token": token}) for token in tokens]
        return [answer.status_code for answer in answers]


@pytest.fixture
def site(store_uri):
    return Site(store_uri)


BODIES = {
    "malformed JSON": ("application/json", b'{"a": 1', b'{"a": 2'),
    "JSON that is no UTF-8": ("application/json", b'"\xff\xfe"', b'"\xff\xff"'),
    "JSON of NUL bytes": ("application/json", b"\0", b"\0\0"),
    "a number that is none": ("application/json", b"NaN", b"Infinity"),
    "a lone surrogate": ("application/json", LONE_SURROGATE, b'"\\ud801"'),
    "a surrogate as a name": ("application/json", b'{"\\ud800": 1}', b'{"\\ud801": 1}'),
    "deep arrays": ("application/json", b"[" * DEEP + b"]" * DEEP, b"[" * DEEP),
    "deep objects": ("application/json", b'{"a":' * DEEP, b'{"b":' * DEEP),
    "big integers": ("application/json", b"9" * 4000, b"9" * 3999 + b"8"),
    "integers too big to read": ("application/json", b"9" * 9000, b"9" * 8999 + b"8"),
    "integers beside floats": ("application/json", b"1", b"1.0"),
    "null and nothing": ("application/json", b"null", b""),
    "binary": ("application/octet-stream", bytes(range(256)), bytes(range(255))),
    "XML": ("application/xml", b"<order id='1'/>", b"<order id='2'/>"),
    "text with NUL bytes": ("text/plain", b"a\0b", b"a\0c"),
    "an unknown charset": ("text/plain; charset=klingon", b"Qapla'", b"nuqneH"),
    "no type at all": (None, b"one", b"two"),
    "a form with NUL bytes": ("application/x-www-form-urlencoded", b"a=%00", b"a=%00%00"),
    "a form that is no UTF-8": ("application/x-www-form-urlencoded", b"a=x%ffy", b"a=xy"),
    "multipart without boundary": ("multipart/form-data", b"one", b"two"),
    "multipart of other parts": ("multipart/form-data; boundary=x", b"--y--", b"--z--"),
    "a form of raw bytes": ("application/x-www-form-urlencoded", b"a=\xff", b"a=\xfe"),
    "JSON with a name twice": ("application/json", b'{"a": 1, "a": 2}', b'{"a": 3, "a": 2}'),
}


@pytest.mark.parametrize("kind", BODIES)
def test_the_same_odd_body_is_a_repeat_and_another_is_not(site, kind):
    content_type, one, other = BODIES[kind]
    assert site.post(one, one, content_type=content_type) == [200, 409]
    assert site.post(other, other, one, content_type=content_type) == [200, 409, 409]
    assert site.seen == [one, other]


def test_json_that_says_the_same_is_a_repeat(site):
    bodies = ['{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1}', '{"b": [2, 1], "a": 1}']
    assert site.post(*bodies, content_type="application/json") == [200, 409, 200]


def test_ten_thousand_form_fields_are_compared_whole(site):
    fields = {f"field-{number}": str(number) for number in range(10_000)}
    assert site.post(fields, fields, {**fields, "field-9999": "x"}) == [200, 409, 200]


@pytest.mark.parametrize("name", ["Authorization", "Idempotence-Token", "X-Forwarded-For"])
@pytest.mark.parametrize("value", ["x" * 2**20, "\0", "Bearer \0\xff", "Basic ", "\ud7ff", ""])
def test_no_header_brings_a_guard_down(site, name, value):
    raw = value.encode().decode("latin-1")
    client = site.app.test_client()
    answers = [client.post("/", environ_overrides={key(name): raw}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 409]
    answer = client.post("/spend", environ_overrides={key(name): raw})
    assert (answer.status_code, len(site.seen)) == (400, 1)


def key(header):
    return f"HTTP_{header.upper().replace('-', '_')}"


def test_a_query_of_any_kind_counts(site):
    queries = ["a=%00", "a=%ff", "a=%FE", "a=" + "x" * 2**20, "&&&===", "a=1&b=2", "a=1%26b%3D2"]
    for query in queries:
        assert site.post(b"", b"", path=f"/?{query}")[1] == 409
    assert len(site.seen) >= len(queries) - 1


def bad_tokens(token):
    unique, time, signature = token.split(".")
    return {
        "empty": "",
        "a dot": ".",
        "cut short": token[:-1],
        "without its signature": f"{unique}.{time}",
        "doubled": token + token,
        "doubled with a dot": f"{token}.{token}",
        "of swapped parts": f"{time}.{unique}.{signature}",
        "of another time": f"{unique}.{time[:-1]}{'AB'[time[-1] == 'A']}.{signature}",
        "of another name": f"{unique[::-1]}.{time}.{signature}",
        "with a space": f" {token}",
        "very long": token + "A" * 2**20,
        "not ASCII": token + "é",
        "digits that are not ASCII": "٣" * 10,
        "a lone surrogate": "\ud800",
        "NUL": "\0",
    }


@pytest.mark.parametrize("kind", bad_tokens("a.b.c"))
def test_a_bad_token_is_invalid_and_spends_nothing(site, kind):
    token = site.token()
    bad = bad_tokens(token)[kind]
    with site.app.app_context(), pytest.raises(TokenInvalid):
        site.idempotence.redeem_token(bad)
    if kind not in ("a lone surrogate", "with a space"):  # no header can hold them
        as_header = {"HTTP_IDEMPOTENCE_TOKEN": bad.encode().decode("latin-1")}
        answer = site.app.test_client().post("/spend", environ_overrides=as_header)
        assert (answer.status_code, answer.json["type"][-13:]) == (400, "token-invalid")
        assert site.post({"idempotence_token": bad}, path="/spend") == [400]
    assert site.seen == []
    assert site.spend(token, token) == [200, 409]


def test_a_token_signed_with_another_key_is_invalid(site, store_uri):
    stranger = Site(store_uri, SECRET_KEY="another secret").token()
    assert site.spend(stranger) == [400]
    with site.app.app_context():
        for not_a_string in (None, 5, b"bytes", ["list"]):
            with pytest.raises(TokenInvalid):
                site.idempotence.redeem_token(not_a_string)
        token = site.idempotence.issue_token()
        site.idempotence.redeem_token(token)
        with pytest.raises(TokenSpent):
            site.idempotence.redeem_token(token)


def test_two_different_tokens_in_one_form_are_invalid_and_stay_unspent(site):
    tokens = [site.token(), site.token()]
    assert site.post({"idempotence_token": tokens}, path="/spend") == [400]
    assert site.spend(*tokens, *tokens) == [200, 200, 409, 409]


@pytest.mark.parametrize("content_type", ["application/json", "multipart/form-data", "text/plain"])
def test_a_body_that_is_too_large_is_flasks_own_error_and_leaves_no_claim(store_uri, content_type):
    site = Site(store_uri, MAX_CONTENT_LENGTH=1000)
    large = {"a": "x" * 2000} if "form" in content_type else b"x" * 2000
    assert site.post(large, large, content_type=content_type) == [413, 413]
    assert site.seen == []
    store = site.app.extensions["idempotence"].store
    assert list(store.scan("idempotence")) == []


READERS = {
    "get_data": lambda: request.get_data(cache=False),
    "data": lambda: request.data,
    "stream": lambda: request.stream.read(-1),
    "the lines of the stream": lambda: b"".join(request.stream),
    "the server's input": lambda: request.environ["wsgi.input"].read() or request.get_data(),
    "a part of the stream and the rest": lambda: request.stream.read(3) + request.stream.read(),
}


@pytest.mark.parametrize("how", READERS)
@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/xml"])
def test_a_view_reads_the_whole_body_after_its_guard(store_uri, how, content_type):
    site = Site(store_uri, READERS[how])
    body = b'{"a": "\\ud83d\\ude00", "b": 1.50}'
    assert site.post(body, body, content_type=content_type) == [200, 409]
    assert site.seen == [body]


def test_a_view_reads_fields_and_raw_data_of_a_form_after_its_guard(store_uri):
    site = Site(store_uri, lambda: (request.get_data(), request.form.to_dict(flat=False)))
    body = b"a=1&b=%20&a=2"
    form = "application/x-www-form-urlencoded"
    assert site.post(body, body, content_type=form) == [200, 409]
    assert site.seen == [(body, {"a": ["1", "2"], "b": [" "]})]


def multipart(text, **fields):
    """Return a fresh form with a file; the client invents a boundary each time."""
    return {"photo": (io.BytesIO(text), "photo.png"), **fields}


def test_multipart_bodies_are_compared_by_their_fields_and_files_stay_readable(store_uri):
    def view():
        return request.files["photo"].read(), request.form.get("a"), request.content_type

    site = Site(store_uri, view)
    bodies = [multipart(b"one", a="1"), multipart(b"one", a="1"), multipart(b"two", a="1")]
    assert site.post(*bodies, multipart(b"one", a="2")) == [200, 409, 409, 200]
    assert [seen[:2] for seen in site.seen] == [(b"one", "1"), (b"one", "2")]
    assert site.seen[0][2] != site.seen[1][2]


class Exact(DefaultJSONProvider):
    def loads(self, text, **options):
        return json.loads(text, parse_float=decimal.Decimal, **options)


class Shop(Flask):
    json_provider_class = Exact


PRICES = ["1.50", "1.51", "1.5", "1.5e0", "0.1", "0.10000000000000001", "1e400", "1e401"]


@pytest.mark.parametrize("body", ['{"price": %s}', "[%s]", "%s", '{"a": [{"b": [%s, 1]}]}'])
def test_a_json_provider_that_reads_decimals_tells_all_numbers_apart(store_uri, body):
    app, seen = Shop("shop"), []
    app.config.update(SECRET_KEY="s", TESTING=True, IDEMPOTENCE_STORAGE_URI=store_uri)
    Idempotence(app)
    view = no_repeat_submit(interval=60)(lambda: seen.append(request.json) or "done")
    app.add_url_rule("/", "pay", view, methods=["POST"])
    client = app.test_client()
    for price in PRICES:
        sent = [body % price, f" {body % price}\n"]
        answers = [client.post("/", data=data, content_type="application/json") for data in sent]
        assert [answer.status_code for answer in answers] == [200, 409]
    exact = [json.loads(body % price, parse_float=decimal.Decimal) for price in PRICES]
    assert repr(seen) == repr(exact)


def test_names_are_ignored_beside_decimals(store_uri):
    app = Shop("shop")
    app.config.update(SECRET_KEY="s", TESTING=True, IDEMPOTENCE_STORAGE_URI=store_uri)
    Idempotence(app)
    app.add_url_rule("/", "pay", no_repeat_submit(60, ignore=["at"])(dict_of), methods=["POST"])
    client = app.test_client()
    bodies = ['{"price": 1.50, "at": 1.1}', '{"at": 2.2, "price": 1.50}', '{"price": 1.51}']
    answers = [client.post("/", data=data, content_type="application/json") for data in bodies]
    assert [answer.status_code for answer in answers] == [200, 409, 200]


def dict_of():
    return {}
