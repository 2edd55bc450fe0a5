"""A guard settles by the response that is sent, after the application's hooks and its session."""

from contextlib import suppress

import pytest
from flask import Blueprint, Response, got_request_exception, jsonify, redirect, request, session
from helpers.apps import GUARDS, HOW_OFTEN_IT_RUNS, KeyedApp, Site, fail, make_app
from werkzeug.exceptions import NotFound

from flask_idempotence import Idempotence, idempotent, no_repeat_submit


def on_views(function):
    """Leave the responses of our own routes alone."""
    return lambda response: response if request.path == "/token" else function(response)


def commit_fails(response):
    raise RuntimeError("COMMIT failed")


def sets(response, **attributes):
    for name, value in attributes.items():
        setattr(response, name, value)
    return response


HOOKS = {
    "raises": commit_fails,
    "answers 503": lambda response: Response("unavailable", 503),
    "answers 422": lambda response: Response("no", 422),
    "sets 503": lambda response: sets(response, status_code=503),
    "answers success: false": lambda response: jsonify(success=False),
    "sets success: false": lambda response: sets(
        response, data=b'{"success": false}', mimetype="application/json"
    ),
    "makes a session that cannot be saved": (
        lambda response: session.update(object=object()) or response
    ),
}


@pytest.fixture(params=GUARDS)
def guard(request):
    return request.param


@pytest.mark.parametrize("propagate", [True, False])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_fails_makes_a_success_a_failure(guard, hook, propagate):
    site = Site(lambda: "done", guard, PROPAGATE_EXCEPTIONS=propagate)
    site.app.after_request(on_views(HOOKS[hook]))
    assert site.runs_after(3) == HOW_OFTEN_IT_RUNS[guard]["failure"]


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize(
    ("hook", "status"),
    [("raises", 500), ("answers 503", 503), ("sets 503", 503), ("answers 422", 422)],
)
def test_a_key_goes_by_the_error_of_a_hook_and_not_the_success_before_it(hook, status, guarantee):
    keyed = KeyedApp(
        lambda: ("paid", 201), guarantee=guarantee, settings={"PROPAGATE_EXCEPTIONS": False}
    )
    failing = [True]
    keyed.app.after_request(
        lambda response: HOOKS[hook](response) if failing and failing.pop() else response
    )
    is_free = guarantee == "at-least-once" and status != 422
    later = [201, "replay of 201"] if is_free else [f"replay of {status}"] * 2
    assert keyed.verdicts({}, {}, {}) == [status, *later]


def test_a_hook_that_hides_a_failure_makes_no_success_of_it(guard):
    site = Site(fail, guard, PROPAGATE_EXCEPTIONS=False)
    site.app.after_request(on_views(lambda response: jsonify(code=500)))
    assert site.runs_after(3) == HOW_OFTEN_IT_RUNS[guard]["failure"]


def test_guards_around_one_another_settle_innermost_first():
    inner = no_repeat_submit(10, key=lambda: "inner")(lambda: "done")
    site = Site(no_repeat_submit(10, key=lambda: "outer")(inner), "lock")
    ended = []
    settle = site.engine.settling.settle
    site.engine.settling.settle = lambda claim: (
        ended.append(claim.number),
        settle(claim),
    )
    site.submit()
    assert ended == sorted(ended, reverse=True)
    assert len(ended) == 3


def test_nothing_is_settled_before_the_hooks_have_run(guard):
    site = Site(lambda: "done", guard)
    seen = []
    site.app.after_request(lambda response: seen.append(list(site.events)) or response)
    site.submit()
    assert seen[-1] == (["claimed"] if guard == "lock" else seen[-1])
    assert not {"completed", "released"} & set(seen[-1])
    assert site.events[-1] == "completed"


def marshal(view):
    """Make a response of some fields of a view's value, as Flask-RESTX's `marshal_with` does."""

    def marshalled():
        value = view()
        return {"n": value.get("n") if isinstance(value, dict) else None}

    return marshalled


def stamped(view):
    def stamping():
        value = view()
        if isinstance(value, Response):
            value.headers["X-Seen"] = "again"
        return value

    return stamping


def answering(answer):
    """Return a decorator that looks at a view's value, and answers by itself the second time."""

    def check(view):
        allowed = iter([True, False])

        def checked():
            value = view()
            return value if next(allowed) else answer()

        return checked

    return check


@pytest.mark.parametrize(
    ("outside", "value", "status", "is_replay"),
    [
        (marshal, {"n": 7}, 200, True),  # which has its part in the record already
        (marshal, ({"n": 7}, 422), 200, True),
        (stamped, {"n": 7}, 200, True),
        (answering(NotFound), {"n": 7}, 404, False),
        (answering(lambda: redirect("/login", 303)), {"n": 7}, 303, False),
        (answering(lambda: {"code": 403}), {"n": 7}, 200, False),  # a failed result
    ],
)
def test_a_decorator_outside_spoils_no_replay_and_may_answer_by_itself(
    outside, value, status, is_replay
):
    keyed = KeyedApp()
    keyed.idempotence.result_failed(
        lambda response: response.is_json and response.json.get("code") == 403
    )
    keyed.add("/outside", lambda: value, guards=[outside])
    first, second = (keyed.send(path="/outside") for _ in range(2))
    assert second.status_code == status
    assert (second.data == first.data) is is_replay
    assert ("Idempotent-Replayed" in second.headers) is is_replay
    assert ("X-Seen" in second.headers) is (outside is stamped)


@pytest.mark.parametrize(
    "hook", [lambda response: jsonify(code=1), lambda response: Response(iter("x"))]
)
def test_a_refusal_says_which_it_is_where_a_hook_replaces_the_response(hook):
    site = Site(lambda: "done", "lock")
    site.app.after_request(on_views(hook))
    refused = [site.submit() for _ in range(2)][1]
    assert refused.headers["Idempotence-Refusal"] == "repeat-submit"
    assert refused.headers["Retry-After"] == "10"


@pytest.mark.parametrize("predicate", ["remember", "result_failed"])
def test_predicates_see_the_views_response_and_not_the_envelope(predicate):
    def is_paid(response):
        return bool(response.json.get("paid"))

    keyed = KeyedApp(lambda: {"paid": True}, remember=is_paid if predicate == "remember" else None)
    if predicate == "result_failed":
        keyed.idempotence.result_failed(lambda response: not is_paid(response))
    keyed.app.after_request(lambda response: jsonify(code=0, data=response.json))
    assert keyed.verdicts({}, {}, {}) == [200, "replay of 200", "replay of 200"]


def test_a_decorator_outside_that_fails_on_a_replay_is_named(caplog):
    keyed = KeyedApp(settings={"PROPAGATE_EXCEPTIONS": False})

    def wraps(view):
        return lambda: {"data": view()}

    keyed.add("/wrapped", lambda: "done", guards=[wraps])
    assert [keyed.send(path="/wrapped").status_code for _ in range(2)] == [200, 500]
    assert "replay of 'wrapped'" in caplog.text
    assert "inside the guard" in caplog.text


@pytest.mark.parametrize("way", ["raised", "returned"])
class TestASecondAttemptInOneRequest:
    """A decorator outside the guard that calls a view again which has failed."""

    def retried(self, way, **options):
        def twice(view):
            def retrying():
                with suppress(ValueError):
                    view()
                return view()

            return retrying

        keyed = KeyedApp()
        keyed.begun = 0

        def view():
            keyed.begun += 1
            if keyed.begun == 1:
                return fail() if way == "raised" else ("busy", 503)
            return "done"

        keyed.add("/retried", view, guards=[twice], **options)
        return keyed

    def test_runs_under_the_first_ones_claim(self, way):
        keyed = self.retried(way)
        assert keyed.verdicts({}, {}, path="/retried") == [200, "replay of 200"]
        assert keyed.begun == 2

    def test_at_most_once_begins_no_second_time(self, way):
        keyed = self.retried(way, guarantee="at-most-once")
        assert keyed.verdicts({}, {}, path="/retried") == ["response-not-stored"] * 2
        assert keyed.begun == 1


def test_a_blueprint_whose_teardown_fails_wedges_no_key():
    keyed = KeyedApp(settings={"PROPAGATE_EXCEPTIONS": False})
    blueprint = Blueprint("shop", __name__)
    blueprint.add_url_rule("/pay", "pay", idempotent()(lambda: "done"), methods=["POST"])
    blueprint.teardown_request(lambda error: fail())
    keyed.app.register_blueprint(blueprint)
    keyed.app.after_request(commit_fails)
    with pytest.raises((ValueError, ExceptionGroup)):  # a group since Flask 3.2
        keyed.send(path="/pay")
    assert not keyed.engine.keeper._held
    assert list(keyed.store.scan("")) == []


@pytest.mark.parametrize(("error", "then"), [(None, 409), (ValueError(), 200)])
def test_without_a_response_the_end_of_the_context_settles(error, then):
    app = make_app(idempotence=Idempotence())
    view = app.post("/orders")(no_repeat_submit(60)(lambda: "done"))
    sender = {"REMOTE_ADDR": "127.0.0.1"}
    context = app.test_request_context("/orders", method="POST", environ_overrides=sender)
    with suppress(ValueError), context:
        view()
        if error is not None:
            raise error
    assert app.test_client().post("/orders").status_code == then


def test_a_signal_of_an_exception_outside_a_request_is_none_of_ours():
    app = KeyedApp().app
    got_request_exception.send(app, exception=ValueError())


def test_a_wsgi_application_that_declares_no_length_is_streamed():
    made = []

    def application(environ, start_response):
        start_response("200 OK", [])
        for part in (b"one ", b"two"):
            made.append(part)
            yield part

    keyed = KeyedApp(lambda: application)
    answer = keyed.send(buffered=False)
    assert made == [b"one "]
    assert answer.data == b"one two"
    answer.close()
    assert keyed.verdicts({}) == ["response-not-stored"]
    assert keyed.runs == 1


@pytest.mark.parametrize("body", [[b"done"], (b"done",), iter([b"done"])])
def test_a_wsgi_application_that_declares_its_length_is_replayed(body):
    def application(environ, start_response):
        start_response("200 OK", [("Content-Length", "4")])
        return body

    keyed = KeyedApp(lambda: application)
    assert keyed.verdicts({}, {}) == [200, "replay of 200"]


def test_a_body_of_a_hook_that_cannot_be_read_is_sent_all_the_same(guard, caplog):
    class Sized:
        def __len__(self):
            return 1

        def __iter__(self):
            return iter([b"x"])

    site = Site(lambda: "done", guard)
    answer = on_views(lambda _: Response(Sized(), direct_passthrough=True))
    site.app.after_request(answer)
    assert site.submit().status_code == 200
    assert "Cannot tell whether the result failed" in caplog.text
    assert site.runs_after(2) == 1
