"""Whatever a client sends: no error of ours, no wrong verdict, nothing lost for the view."""

import decimal
import json

import pytest
from flask import request
from flask.json.provider import DefaultJSONProvider
from helpers.apps import make_app

from flask_idempotence import (
    no_repeat_submit,
    one_time_token,
)

DEEP = 100_000
LONE_SURROGATE = b'"\\ud800"'


class Site:
    """An application whose guarded views keep what they read."""

    def __init__(self):
        self.app, self.seen = make_app(), []
        for path, guard in [("/", no_repeat_submit(interval=60)), ("/spend", one_time_token())]:
            self.app.add_url_rule(path, path, guard(self.view), methods=["POST"])

    def view(self):
        self.seen.append(request.get_data())
        return "done"

    def post(self, *bodies, path="/", **options):
        """Send the bodies one after the other and return the statuses."""
        client = self.app.test_client()
        return [client.post(path, data=body, **options).status_code for body in bodies]


@pytest.fixture
def site():
    return Site()


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


class Exact(DefaultJSONProvider):
    def loads(self, text, **options):
        return json.loads(text, parse_float=decimal.Decimal, **options)


def exact_client(view, **options):
    """Return a client of a locked view, whose application reads decimals."""
    app = make_app()
    app.json = Exact(app)
    guard = no_repeat_submit(interval=60, **options)
    app.add_url_rule("/", "pay", guard(view), methods=["POST"])
    return app.test_client()


PRICES = ["1.50", "1.51", "1.5", "1.5e0", "0.1", "0.10000000000000001", "1e400", "1e401"]


@pytest.mark.parametrize("body", ['{"price": %s}', "[%s]", "%s", '{"a": [{"b": [%s, 1]}]}'])
def test_a_json_provider_that_reads_decimals_tells_all_numbers_apart(body):
    seen = []
    client = exact_client(lambda: seen.append(request.json) or "done")
    for price in PRICES:
        sent = [body % price, f" {body % price}\n"]
        answers = [client.post("/", data=data, content_type="application/json") for data in sent]
        assert [answer.status_code for answer in answers] == [200, 409]
    exact = [json.loads(body % price, parse_float=decimal.Decimal) for price in PRICES]
    assert repr(seen) == repr(exact)


def test_names_are_ignored_beside_decimals():
    client = exact_client(lambda: "done", ignore=["at"])
    bodies = ['{"price": 1.50, "at": 1.1}', '{"at": 2.2, "price": 1.50}', '{"price": 1.51}']
    answers = [client.post("/", data=data, content_type="application/json") for data in bodies]
    assert [answer.status_code for answer in answers] == [200, 409, 200]
