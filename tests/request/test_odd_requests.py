"""Whatever a client, a server or a hook makes of a request: no error of ours, no wrong verdict."""

import decimal
import json
from uuid import UUID

import pytest
from flask import request
from flask.json.provider import DefaultJSONProvider
from helpers.applications.login_apps import REPEATED, CountingApp
from helpers.apps import make_app, verdict
from helpers.request_bodies import BYTES, FORM, JSON, PARTS, app_with, part, post, send
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.routing import BaseConverter

from flask_idempotence import ConfigurationError, RedisStore, no_repeat_submit, one_time_token

pytestmark = pytest.mark.usefixtures("no_collection")

LOCK = no_repeat_submit(60)
CHUNKED = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}


def statuses(app, *bodies, content_type=JSON):
    return [post(app, body, content_type).status_code for body in bodies]


# Bodies

DEEP = 100_000
BODIES = {
    "malformed JSON": (JSON, b'{"a": 1', b'{"a": 2'),
    "JSON that is no UTF-8": (JSON, b'"\xff\xfe"', b'"\xff\xff"'),
    "JSON of NUL bytes": (JSON, b"\0", b"\0\0"),
    "a number that is none": (JSON, b"NaN", b"Infinity"),
    "a lone surrogate": (JSON, b'"\\ud800"', b'"\\ud801"'),
    "a surrogate as a name": (JSON, b'{"\\ud800": 1}', b'{"\\ud801": 1}'),
    "deep arrays": (JSON, b"[" * DEEP + b"]" * DEEP, b"[" * DEEP),
    "deep objects": (JSON, b'{"a":' * DEEP, b'{"b":' * DEEP),
    "big integers": (JSON, b"9" * 4000, b"9" * 3999 + b"8"),
    "integers too big to read": (JSON, b"9" * 9000, b"9" * 8999 + b"8"),
    "integers beside floats": (JSON, b"1", b"1.0"),
    "null and nothing": (JSON, b"null", b""),
    "binary": (BYTES, bytes(range(256)), bytes(range(255))),
    "XML": ("application/xml", b"<order id='1'/>", b"<order id='2'/>"),
    "text with NUL bytes": ("text/plain", b"a\0b", b"a\0c"),
    "an unknown charset": ("text/plain; charset=klingon", b"Qapla'", b"nuqneH"),
    "no type at all": ("", b"one", b"two"),
    "a form with NUL bytes": (FORM, b"a=%00", b"a=%00%00"),
    "a form that is no UTF-8": (FORM, b"a=x%ffy", b"a=xy"),
    "multipart without boundary": ("multipart/form-data", b"one", b"two"),
    "multipart of other parts": (PARTS, b"--y--", b"--z--"),
    "a form of raw bytes": (FORM, b"a=\xff", b"a=\xfe"),
    "JSON with a name twice": (JSON, b'{"a": 1, "a": 2}', b'{"a": 3, "a": 2}'),
    "ten thousand fields": (
        FORM,
        b"&".join(b"field-%d=x" % number for number in range(10_000)),
        b"&".join(b"field-%d=x" % number for number in range(10_000)) + b"y",
    ),
}


@pytest.mark.parametrize("kind", BODIES)
def test_the_same_odd_body_is_a_repeat_and_another_is_not(kind):
    content_type, one, other = BODIES[kind]
    seen = []
    app = app_with(lambda: seen.append(request.get_data()) or "done", LOCK)
    sent = [one, one, other, other, one]
    assert statuses(app, *sent, content_type=content_type) == [200, 409, 200, 409, 409]
    assert seen == [one, other]


class Exact(DefaultJSONProvider):
    def loads(self, text, **options):
        return json.loads(text, parse_float=decimal.Decimal, **options)


def exact_app(view, **options):
    """Return an application that reads decimals, with a locked view."""
    app = app_with(view, no_repeat_submit(60, **options))
    app.json = Exact(app)
    return app


PRICES = ["1.50", "1.51", "1.5", "1.5e0", "0.1", "0.10000000000000001", "1e400", "1e401"]


@pytest.mark.parametrize("body", ['{"price": %s}', "[%s]", "%s", '{"a": [{"b": [%s, 1]}]}'])
def test_a_json_provider_that_reads_decimals_tells_all_numbers_apart(body):
    seen = []
    app = exact_app(lambda: seen.append(request.json) or "done")
    for price in PRICES:
        text = body % price
        assert statuses(app, text.encode(), f" {text}\n".encode()) == [200, 409]
    exact = [json.loads(body % price, parse_float=decimal.Decimal) for price in PRICES]
    assert repr(seen) == repr(exact)


def test_names_are_ignored_beside_decimals():
    app = exact_app(lambda: "done", ignore=["at"])
    bodies = b'{"price": 1.50, "at": 1.1}', b'{"at": 2.2, "price": 1.50}', b'{"price": 1.51}'
    assert statuses(app, *bodies) == [200, 409, 200]


@pytest.mark.parametrize("read", ["get_data", "stream"])
def test_a_token_in_a_form_leaves_the_raw_body_to_the_view(read):
    seen = []

    def view():
        seen.append(request.get_data() if read == "get_data" else request.stream.read())
        return dict(request.form)

    app = app_with(view, one_time_token())
    token = app.test_client().get("/token").json["token"]
    body = f"idempotence_token={token}&a=1".encode()
    answer = app.test_client().post("/", data=body, content_type=FORM)
    # As without a guard: of a stream that has been read, nothing is left for the form.
    assert answer.json.get("a") == ("1" if read == "get_data" else None)
    assert seen == [body]


# Hooks that have had their hands on a body


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(
    ("content_type", "body"),
    [(JSON, b'{"a": 1}'), (FORM, b"a=1"), (PARTS, part("a", "1") + b"--x--\r\n")],
)
@pytest.mark.parametrize(
    "eat",
    [
        lambda: request.stream.read(-1),
        lambda: request.stream.read(2),
        lambda: request.get_data(cache=False),
    ],
    ids=["stream", "a part", "data"],
)
def test_a_body_that_a_hook_has_eaten_is_an_error_and_no_repeat(eat, content_type, body, chunked):
    app = app_with(lambda: "done", LOCK)
    app.before_request(lambda: eat() and None)

    with pytest.raises(ConfigurationError, match="was read before its guard"):
        send(app, body, content_type, CHUNKED if chunked else {"CONTENT_LENGTH": str(len(body))})


# Headers, queries, places


@pytest.mark.parametrize("name", ["AUTHORIZATION", "IDEMPOTENCE_TOKEN", "X_FORWARDED_FOR"])
@pytest.mark.parametrize("value", ["x" * 2**20, "\0", "Bearer \0\xff", "Basic ", "\ud7ff", ""])
def test_no_header_brings_a_guard_down(name, value):
    header = {f"HTTP_{name}": value.encode().decode("latin-1")}
    app = app_with(lambda: "done", LOCK)
    assert [send(app, b"", JSON, header).status_code for _ in range(2)] == [200, 409]
    assert send(app_with(lambda: "done", one_time_token()), b"", JSON, header).status_code == 400


@pytest.mark.parametrize(
    ("query", "other"),
    [("a=%00", "a="), ("a=%ff", "a=%FE"), ("a=\xff", "a=\xfe"), ("a=" + "x" * 2**20, "a=x"),
     ("&&&===", ""), ("a=1&b=2", "a=1%26b%3D2")],
)  # fmt: skip
def test_a_query_of_any_kind_counts(query, other):
    app = app_with(lambda: "done", LOCK)
    sent = [{"QUERY_STRING": each} for each in (query, query, other)]
    assert [send(app, b"", JSON, each).status_code for each in sent] == [200, 409, 200]


def test_a_purpose_that_is_no_text_is_a_400():
    issued = (
        make_app().test_client().get("/token", environ_overrides={"QUERY_STRING": "purpose=\xff"})
    )
    assert issued.status_code == 400


def test_one_application_at_two_places_keeps_their_requests_apart():
    app, other = app_with(lambda: "done", LOCK), make_app()
    other.wsgi_app = DispatcherMiddleware(other.wsgi_app, {"/acme": app, "/globex": app})
    places = ("/acme", "/globex") * 2
    codes = [other.test_client().post(f"{place}/").status_code for place in places]
    assert codes == [200, 200, 409, 409]


# Path arguments of the application's own converters, and routes with several rules

OTHER = {"key": "key-reused", "lock": 200}
"""What another request gets: the lock does not know it; a key was used for another one."""
each_guard = pytest.mark.parametrize("guard", ["key", "lock"])


class Order:
    def __init__(self, number):
        self.number = number


class TitledOrder(Order):
    def __str__(self):
        return "An order"


class SoldOrder(Order):
    def __str__(self):
        raise RuntimeError("it has no text")


def with_orders(guard, kind):
    class OrderConverter(BaseConverter):
        def to_python(self, value):
            return kind(value)

    counter = CountingApp(guard)
    counter.app.url_map.converters["order"] = OrderConverter
    counter.add("/orders/<order:order>/<path:rest>")
    return counter


def verdicts(counter, *paths):
    return [verdict(counter.send(path)) for path in paths]


@each_guard
@pytest.mark.parametrize("kind", [Order, TitledOrder, SoldOrder, list, lambda text: {"id": text}])
def test_the_text_of_the_path_counts(guard, kind):
    paths = ["/orders/1/pay", "/orders/1/pay", "/orders/2/pay", "/orders/1/ship"]
    found = verdicts(with_orders(guard, kind), *paths)
    assert found == [200, REPEATED[guard], OTHER[guard], OTHER[guard]]


@each_guard
def test_so_it_does_where_a_preprocessor_puts_an_object_in_the_place_of_a_text(guard):
    counter = CountingApp(guard)
    counter.add("/orders/<number>")

    @counter.app.url_value_preprocessor
    def load(endpoint, values):
        values["number"] = TitledOrder(values["number"])

    found = verdicts(counter, "/orders/1", "/orders/1", "/orders/2")
    assert found == [200, REPEATED[guard], OTHER[guard]]


@each_guard
def test_two_rules_of_one_endpoint_are_two_requests(guard):
    counter = CountingApp(guard)
    view = counter.app.view_functions["view"]
    counter.app.add_url_rule("/refund", "view", view, methods=["POST"])
    assert verdicts(counter, "/", "/refund", "/") == [200, OTHER[guard], REPEATED[guard]]


def test_so_they_are_where_a_function_stands_for_the_arguments():
    counter = CountingApp()
    view = no_repeat_submit(interval=60, key=lambda: "cart")(lambda: "done")
    for rule in ("/in", "/out"):
        counter.app.add_url_rule(rule, "move", view, methods=["POST"])
    assert verdicts(counter, "/in", "/out", "/in") == [200, 200, "repeat-submit"]


@pytest.mark.parametrize(
    ("kind", "paths", "found"),
    [
        ("order", ["/1/a/", "/1/a/", "/2/a/", "/2/b/"], [200, "repeat-submit", 200, 200]),
        (
            "uuid",
            [f"/1/{UUID(int=1)}/", f"/2/{UUID(int=1)}/", f"/2/{UUID(int=2)}/"],
            [200, "repeat-submit", 200],
        ),
    ],
)
def test_beside_an_object_every_argument_counts(kind, paths, found):
    """One that does not count leaves the others as they are, if they are no objects."""
    counter = with_orders("lock", Order)
    view = no_repeat_submit(interval=60, ignore=["nonce"])(lambda **arguments: "done")
    counter.app.add_url_rule(f"/<nonce>/<{kind}:order>/", "ignoring", view, methods=["POST"])
    assert verdicts(counter, *paths) == found


# Clients and stores of the application's own


def test_the_encoding_of_a_ready_client_is_not_ours(redis_server, redis_url):
    with redis_server.client(encoding="utf-16") as client:
        app = make_app(store=RedisStore(client))
        app.add_url_rule("/é", "é", LOCK(lambda: "done"), methods=["POST"])
        codes = [app.test_client().post("/é").status_code for _ in range(2)]
    assert codes == [200, 409]
