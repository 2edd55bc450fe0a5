"""A replay is the first answer again: status line, body and headers."""

from itertools import count

import pytest
from flask import Flask, Response, abort, after_this_request, make_response, redirect, session
from helpers.apps import SUCCESSES, KeyedApp, fail
from werkzeug.exceptions import Conflict, NotFound, UnprocessableEntity

from flask_idempotence import Idempotence, current_guard, idempotent

LEFT_OUT = {
    "set-cookie": "seen=yes; Path=/",
    "date": "Mon, 02 Nov 2026 10:00:00 GMT",
    "www-authenticate": 'Basic realm="shop"',
    "connection": "close, X-Hop",
    "x-hop": "1",
}
"""What is of one answer, or of one connection."""


def kept_of(answer):
    """Return the headers of an answer that its replay has to repeat."""
    pairs = [(name.lower(), value) for name, value in answer.headers]
    return sorted(pair for pair in pairs if pair[0] not in {*LEFT_OUT, "idempotent-expires-in"})


def check_app(app, path="/"):
    """Send a request to an application thrice, check the repeats, and return the answers."""
    answers = [
        app.test_client().post(path, headers={"Idempotency-Key": "k"}, buffered=True)
        for _ in range(3)
    ]
    first = answers[0]
    assert "Idempotent-Replayed" not in first.headers
    for repeat in answers[1:]:
        assert (repeat.status, repeat.data) == (first.status, first.data)
        assert kept_of(repeat) == sorted([*kept_of(first), ("idempotent-replayed", "true")])
        assert not any(name in repeat.headers for name in LEFT_OUT)
    return answers


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
    "repeated headers": repeated,
    "headers that are left out": lambda: ("done", 402, LEFT_OUT | {"X-Kept": "1"}),
    "a header that is not ASCII": lambda: ("done", {"X-Name": "caf\xe9"}),
    "many headers": lambda: ("done", {f"X-{number}": str(number) for number in range(300)}),
    "compressed bytes": lambda: (b"\x1f\x8b\0\xff", {"Content-Encoding": "gzip"}),
    "text of the world": lambda: "naïve ☕ 支付 \U0001f4b8",
    "a body in pieces": lambda: Response(["one ", b"two", "three"]),
    "a body that may not be": lambda: ("ignored", 204),
    "no type": lambda: Response(b"done", headers={"Content-Type": ""}),
    "a reason of its own": lambda: ("done", "299 Paid In Full"),
    "only a reason": lambda: ("done", "Splendid"),
    "a redirect": lambda: redirect("/receipt?id=7", 303),
    "abort": lambda: abort(404, "No such <order>."),
    "abort with a response": lambda: abort(make_response("no", 422, {"X-Why": "no"})),
    "an error": lambda: NotFound("no such order"),
    "an error in a tuple": lambda: (UnprocessableEntity("no"), 422),
    "an error with a body of its own": lambda: Conflict(response=Response("rival", 422)),
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


class Exact(Response):
    default_mimetype = "application/xml"


class Shop(Flask):
    response_class = Exact


@pytest.mark.parametrize("view", [lambda: "<a/>", lambda: Response("<a/>")])
def test_a_response_class_of_the_applications_own(view):
    app = Shop("shop")
    app.config.update(SECRET_KEY="a secret for the tests", TESTING=True)
    Idempotence(app)
    app.add_url_rule("/", "view", idempotent()(view), methods=["POST"])
    seen = []
    app.after_request(lambda response: seen.append(type(response)) or response)
    check_app(app)
    assert seen[1:] == [Exact, Exact]


@pytest.mark.parametrize("status", [200, 202])
def test_hooks_run_on_a_replay_too_and_can_tell_it(status):
    keyed, seen = KeyedApp(), []

    @keyed.app.after_request
    def note(response):
        seen.append((current_guard.replayed, response.headers.get("Idempotent-Replayed")))
        response.headers["X-Hook"] = f"run {len(seen)}"
        response.set_cookie("run", str(len(seen)))
        response.set_data(response.get_data() + b"!")
        response.status_code = status
        return response

    answers = [keyed.send() for _ in range(3)]
    assert seen == [(False, None), (True, "true"), (True, "true")]
    assert [answer.text for answer in answers] == ["done!"] * 3
    assert [answer.headers["X-Hook"] for answer in answers] == ["run 1", "run 2", "run 3"]
    assert ["run=3" in answer.headers["Set-Cookie"] for answer in answers] == [False, False, True]


def test_a_hook_that_sets_a_default_keeps_the_remembered_header():
    keyed, runs = KeyedApp(lambda: ("done", 200, {"X-Policy": "of the view"})), count()

    @keyed.app.after_request
    def add_policy(response):
        response.headers.setdefault("X-Policy", "of the hook")
        response.headers["X-Nonce"] = f"run {next(runs)}"
        return response

    answers = [keyed.send() for _ in range(2)]
    assert [answer.headers["X-Policy"] for answer in answers] == ["of the view"] * 2
    assert [answer.headers["X-Nonce"] for answer in answers] == ["run 0", "run 1"]


def test_a_hook_that_fails_on_a_replay_spoils_no_later_one():
    keyed = KeyedApp(settings={"PROPAGATE_EXCEPTIONS": False})
    failing = [True]
    keyed.app.after_request(
        lambda answer: fail() if current_guard.replayed and failing.pop() else answer
    )
    assert keyed.verdicts({}, {}) == [200, 500]
    failing[:] = [False, False]
    assert keyed.verdicts({}, {}) == ["replay of 200"] * 2


def test_the_session_cookie_is_of_the_first_answer_alone():
    keyed = KeyedApp(lambda: session.setdefault("cart", "tea"))
    ann, bob = keyed.app.test_client(), keyed.app.test_client()
    first, second = keyed.send(client=ann), keyed.send(client=bob)
    assert (first.text, second.text) == ("tea", "tea")
    assert "session=" in first.headers["Set-Cookie"]
    assert "Set-Cookie" not in second.headers
    assert (first.headers["Vary"], second.headers["Vary"]) == ("Cookie", "Cookie")
    with bob.session_transaction() as held:
        assert "cart" not in held
