"""A replay is the first answer again: status line, body and headers."""

import asyncio

import pytest
from flask import (
    Flask,
    Response,
    abort,
    after_this_request,
    jsonify,
    make_response,
    redirect,
)
from flask.views import MethodView, View
from helpers.apps import SUCCESSES, KeyedApp, fail, make_app

from flask_idempotence import Idempotence, idempotent

OF_ONE_ANSWER = {
    "Set-Cookie": "seen=yes; Path=/",
    "Date": "Mon, 02 Nov 2026 10:00:00 GMT",
    "WWW-Authenticate": 'Basic realm="shop"',
    "Authorization": "Bearer secret",
    "Authentication-Info": 'nextnonce="secret"',
    "Proxy-Authenticate": "Basic",
    "Proxy-Authorization": "Basic c2VjcmV0",
    "Proxy-Authentication-Info": 'nextnonce="secret"',
}
OF_ONE_CONNECTION = {
    "Connection": "close, X-Hop",
    "X-Hop": "1",
    "Keep-Alive": "timeout=5",
    "Proxy-Connection": "close",
    "TE": "trailers",
    "Trailer": "X-Sum",
    "Transfer-Encoding": "identity",
    "Upgrade": "h2c",
}
LEFT_OUT = {name.lower() for name in (*OF_ONE_ANSWER, *OF_ONE_CONNECTION)}


def kept_of(answer):
    """Return the headers of an answer that its replay has to repeat."""
    pairs = [(name.lower(), value) for name, value in answer.headers]
    changing = {*LEFT_OUT, "idempotent-expires-in"}
    return sorted(pair for pair in pairs if pair[0] not in changing)


def check_replay(first, second):
    """Check that the second answer is the first one again."""
    assert second.status == first.status
    assert second.data == first.data
    assert "Idempotent-Replayed" not in first.headers
    assert kept_of(second) == sorted([*kept_of(first), ("idempotent-replayed", "true")])
    for name in LEFT_OUT:
        assert name not in second.headers


def check_app(app, path="/"):
    """Send a request to an application thrice, check the repeats, and return the answers."""
    answers = [
        app.test_client().post(path, headers={"Idempotency-Key": "k"}, buffered=True)
        for _ in range(3)
    ]
    for repeat in answers[1:]:
        check_replay(answers[0], repeat)
    return answers


def headed(**headers):
    response = Response("done")
    for name, value in headers.items():
        response.headers[name.replace("_", "-")] = value
    return response


def repeated():
    response = Response("done")
    for link in ("</a>; rel=next, </b>", "</c>", "</a>; rel=next, </b>"):
        response.headers.add("Link", link)
        response.headers.add("x-custom", link)
    response.vary.update(["Accept", "Origin"])
    return response


def added_later():
    @after_this_request
    def add(response):
        response.headers["X-Later"] = "yes"
        response.set_data(response.get_data() + b" and dusted")
        return response

    return "done"


VALUES = {
    **{how: view for how, view in SUCCESSES.items() if how != "a WSGI application"},
    "a tuple with repeated headers": lambda: ("done", 201, [("Link", "</a>"), ("Link", "</b>")]),
    "repeated headers": repeated,
    "headers of one answer": lambda: ("done", 402, OF_ONE_ANSWER | {"X-Kept": "1"}),
    "headers of one connection": lambda: ("done", OF_ONE_CONNECTION | {"X-Kept": "1"}),
    "a header that is not ASCII": lambda: ("done", {"X-Name": "caf\xe9"}),
    "an empty header": lambda: ("done", {"X-Empty": ""}),
    "a long header": lambda: ("done", {"X-Long": "x" * 60_000}),
    "many headers": lambda: ("done", {f"X-{number}": str(number) for number in range(300)}),
    "a header in lower case": lambda: headed(content_type="text/csv", etag='"1"'),
    "the known headers": lambda: headed(
        Cache_Control="no-store", Content_Language="en", Expires="0", Retry_After="3", Vary="*"
    ),
    "every byte": lambda: bytes(range(256)) * 5,
    "compressed bytes": lambda: (b"\x1f\x8b\0\xff", {"Content-Encoding": "gzip"}),
    "text of the world": lambda: "naïve ☕ 支付 \U0001f4b8",
    "a body in pieces": lambda: Response(["one ", b"two", "three"]),
    "no body": lambda: ("", 204),
    "a body that may not be": lambda: ("ignored", 204),
    "no type": lambda: Response(b"done", headers={"Content-Type": ""}),
    "a type of its own": lambda: Response(b"done", mimetype="application/vnd.shop+json"),
    "a reason of its own": lambda: ("done", "299 Paid In Full"),
    "another reason": lambda: ("done", "200 Fine"),
    "an unknown status": lambda: ("done", 299),
    "only a reason": lambda: ("done", "Splendid"),
    "a redirect": lambda: redirect("/receipt?id=7", 303),
    "abort": lambda: abort(404, "No such <order>."),
    "abort with a response": lambda: abort(make_response("no", 422, {"X-Why": "no"})),
    "abort with no body": lambda: abort(Response(status=204)),
    "an error handler's response": lambda: {}["missing"],
    "later additions": added_later,
}


@pytest.mark.parametrize("value", VALUES)
def test_what_a_view_returns_or_raises_is_replayed(value):
    keyed = KeyedApp(VALUES[value])
    keyed.app.register_error_handler(
        KeyError, lambda error: ({"no": str(error)}, 418, {"X-A": "b"})
    )
    check_app(keyed.app)
    assert keyed.runs == 1


@pytest.mark.parametrize("headers", [OF_ONE_ANSWER, OF_ONE_CONNECTION])
def test_what_is_left_out_of_a_replay_was_in_the_first_answer(headers):
    first = KeyedApp(lambda: ("done", headers)).send()
    assert headers.items() <= dict(first.headers).items()


@pytest.mark.parametrize("propagate", [True, False])
def test_what_a_generic_error_handler_makes_is_replayed(propagate):
    keyed = KeyedApp(fail, settings={"PROPAGATE_EXCEPTIONS": propagate})
    keyed.app.register_error_handler(Exception, lambda error: jsonify(no=str(error)))
    assert check_app(keyed.app)[0].json == {"no": "the view failed"}


class Exact(Response):
    default_mimetype = "application/xml"


class Shop(Flask):
    response_class = Exact


@pytest.mark.parametrize("view", [lambda: "<a/>", lambda: Response("<a/>"), lambda: Exact("<a/>")])
def test_a_response_class_of_the_applications_own(view):
    app = Shop("shop")
    app.config.update(SECRET_KEY="a secret for the tests", TESTING=True)
    Idempotence(app)
    app.add_url_rule("/", "view", idempotent()(view), methods=["POST"])
    seen = []
    app.after_request(lambda response: seen.append(type(response)) or response)
    check_app(app)
    assert seen[1:] == [Exact, Exact]


RUNS = []


def paid(*_):
    RUNS.append(1)
    return {"id": 7, "run": len(RUNS)}, 201, {"X-Run": str(len(RUNS))}


async def paid_later(*_):
    await asyncio.sleep(0)
    return paid()


def class_of(base, **members):
    return type("Orders", (base,), members).as_view("orders")


KINDS = {
    "a method": lambda guard: class_of(MethodView, post=guard(paid)),
    "the decorators of a class": lambda guard: class_of(MethodView, decorators=[guard], post=paid),
    "a dispatching method": lambda guard: class_of(View, dispatch_request=guard(paid)),
    "an async method": lambda guard: class_of(MethodView, post=guard(paid_later)),
    "an async view": lambda guard: guard(paid_later),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_of_another_kind_is_replayed(kind):
    app, runs = make_app(), len(RUNS)
    app.add_url_rule("/", view_func=KINDS[kind](idempotent()), methods=["POST"])
    first, *_ = check_app(app)
    assert (first.status_code, first.json["id"], len(RUNS) - runs) == (201, 7, 1)
