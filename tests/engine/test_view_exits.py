"""Every way out of a guarded view settles by the rule that fits."""

import contextlib
import gc
from contextvars import copy_context
from inspect import signature

import pytest
from flask import Response, abort, request, send_file, stream_with_context
from helpers.apps import (
    FAILURES,
    GUARDS,
    HOW_OFTEN_IT_RUNS,
    SUCCESSES,
    KeyedApp,
    Site,
    fail,
    killed,
)
from werkzeug.exceptions import NotFound

from flask_idempotence import claimed, current_guard, no_repeat_submit


@pytest.fixture(params=GUARDS)
def guard(request):
    return request.param


@pytest.mark.parametrize("failure", [lambda: abort(404), NotFound], ids=["aborts", "returns"])
def test_an_error_is_settled_before_its_response_is_closed(failure):
    site = Site(failure, "lock")
    assert [site.submit(buffered=False).status_code for _ in range(3)] == [404, 404, 404]


def test_the_views_own_exception_comes_out(guard):
    with pytest.raises(ValueError, match="the view failed"):
        Site(fail, guard).submit()
    assert Site(fail, guard, PROPAGATE_EXCEPTIONS=False).submit().status_code == 500


def as_it_is(site):
    """Leave the application without handlers."""


ENDINGS = {
    **{way: (view, as_it_is, "success") for way, view in SUCCESSES.items()},
    **{way: (view, as_it_is, "failure") for way, view in FAILURES.items()},
    "a file": (lambda: send_file(__file__), as_it_is, "success"),
    "a file with an error": (lambda: (send_file(__file__), 404), as_it_is, "failure"),
    "an error handler": (
        fail,
        lambda site: site.app.register_error_handler(ValueError, lambda error: ("no", 422)),
        "failure",
    ),
    "an error handler that makes a success of it": (
        fail,
        lambda site: site.app.register_error_handler(ValueError, lambda error: "handled"),
        "success",
    ),
    "an error handler that fails": (
        lambda: abort(400),
        lambda site: site.app.register_error_handler(400, lambda error: fail()),
        "failure",
    ),
    "what the application calls a failed result": (
        lambda: ("accepted, but no", 202),
        lambda site: site.idempotence.result_failed(lambda response: response.status_code == 202),
        "failure",
    ),
}


@pytest.mark.parametrize("propagate", [True, False])
@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_answered_in_the_end_settles(guard, ending, propagate):
    view, arrange, outcome = ENDINGS[ending]
    site = Site(view, guard, PROPAGATE_EXCEPTIONS=propagate)
    arrange(site)
    assert site.runs_after(3) == HOW_OFTEN_IT_RUNS[guard][outcome]


def test_the_routes_own_predicate_wins_over_the_applications():
    guard = no_repeat_submit(10, failed=lambda response: response.data == b"no")
    for answer, runs in [("no", 3), ("yes", 1)]:
        site = Site(lambda answer=answer: answer, guard)
        site.idempotence.result_failed(lambda response: 1 / 0)
        assert site.runs_after(3) == runs


def test_a_predicate_that_raises_lets_no_repeat_through(guard, caplog):
    site = Site(lambda: ("no", 500), guard)
    site.idempotence.result_failed(lambda response: 1 / 0)
    assert site.submit().status_code == 500
    assert "Cannot tell whether the result failed" in caplog.text
    assert site.runs_after(2) == 1


def test_a_view_may_release_by_hand_what_succeeded(guard):
    site = Site(lambda: current_guard.release() or "done", guard)
    assert site.runs_after(3) == 3


@pytest.mark.parametrize("failure", [fail, lambda: abort(400), lambda: {"success": False}])
def test_a_view_may_keep_by_hand_what_failed(guard, failure):
    assert Site(lambda: current_guard.keep() or failure(), guard).runs_after(3) == 1


def test_a_killed_view_holds_until_its_lease_ends(guard):
    site = Site(killed, guard)
    with pytest.raises(SystemExit):
        site.submit()
    site.clock.advance(9.9)
    site.engine.keeper.tick()
    assert (site.submit().status_code, site.runs) == (409, 1)
    site.clock.advance(0.2)
    with contextlib.suppress(SystemExit):
        site.submit()
    assert site.runs == (2 if guard == "lock" else 1)


def test_a_killed_view_whose_end_is_caught_further_out_holds_as_well(guard):
    site = Site(killed, guard)
    guarded = site.app.view_functions["view"]

    def caught():
        with contextlib.suppress(SystemExit):
            return guarded()
        return "stopped", 500

    site.app.view_functions["view"] = caught
    assert [site.submit().status_code for _ in range(2)] == [500, 409]


def test_a_rejected_duplicate_releases_nothing(guard):
    def submits_again():
        return [site.submit().status_code for _ in range(3)] if site.runs == 1 else "again"

    site = Site(submits_again, guard)
    assert site.submit().json == [409, 409, 409]
    assert site.submit().status_code == 409
    assert site.runs == 1
    assert site.events == ["claimed", *["rejected"] * 3, "completed", "rejected"]


def test_a_guarded_view_may_call_another_one_with_the_same_key(guard):
    inner_runs = []
    inner = GUARDS[guard](lambda: inner_runs.append(1) or "inner")
    site = Site(inner, guard)
    assert site.submit().text == "inner"
    assert site.submit().status_code == 409
    assert (site.runs, len(inner_runs)) == (1, 1)


def test_what_an_inner_view_raises_and_the_outer_one_catches_is_a_success(guard):
    def catches():
        try:
            return GUARDS[guard](fail)()
        except ValueError:
            return "caught"

    site = Site(catches, guard)
    assert site.submit().text == "caught"
    assert site.runs_after(2) == 1


def stream(guard, body=lambda: iter(["one ", "two ", "three"]), status=200, **settings):
    """Return a site that answers with a streamed response."""
    return Site(lambda: Response(body(), status), guard, **settings)


def fails_midway():
    yield "one "
    raise ValueError("the body failed")


def test_a_streamed_response_holds_until_it_is_closed(guard):
    site = stream(guard)
    response = site.submit(buffered=False)
    for _ in range(10):
        site.clock.advance(9)
        site.engine.keeper.tick()
        assert site.submit().status_code == 409
    assert (response.text, "completed" in site.events) == ("one two three", False)
    response.close()
    assert site.events[-1] == "completed"
    site.clock.advance(9.9)
    assert site.submit().status_code == 409
    site.clock.advance(0.2)
    assert site.submit().status_code == (200 if guard == "lock" else 409)


@pytest.mark.parametrize("ending", ["sent", "dropped by the client"])
@pytest.mark.parametrize(("status", "outcome"), [(200, "success"), (500, "failure")])
def test_a_streamed_status_settles_when_the_response_is_closed(guard, status, outcome, ending):
    site = stream(guard, status=status)
    for _ in range(3):
        response = site.submit(buffered=False)
        assert next(response.response)
        assert site.submit().status_code == 409
        assert ending != "sent" or response.data is not None
        response.close()
    assert site.runs == HOW_OFTEN_IT_RUNS[guard][outcome]


def test_a_body_that_fails_midway_is_a_failure(guard):
    site = stream(guard, body=fails_midway)
    with pytest.raises(ValueError, match="the body failed"):
        site.submit()
    assert site.runs_after(2) == HOW_OFTEN_IT_RUNS[guard]["failure"]


@pytest.mark.parametrize("propagate", [True, False])
@pytest.mark.parametrize(
    ("other", "outcome"),
    [
        (fail, "failure"),
        (lambda: Response("other", 500), "failure"),
        (lambda: Response("other"), "success"),
        (lambda: Response(iter(["other"])), "success"),
        (lambda: Response(iter(["other"]), 500), "failure"),
    ],
)
def test_a_streamed_response_that_a_hook_drops_is_settled_by_what_is_sent(
    guard, other, outcome, propagate
):
    site = stream(guard, PROPAGATE_EXCEPTIONS=propagate)
    site.app.after_request(lambda old: old if request.path == "/token" else other())
    assert site.runs_after(3) == HOW_OFTEN_IT_RUNS[guard][outcome]


@pytest.mark.parametrize("wrap", [iter, stream_with_context])
def test_a_streamed_response_that_is_never_opened_is_settled_when_it_is_collected(wrap):
    site = stream("lock", lambda: wrap(part for part in ["one ", "two"]))
    dispatch = site.app.full_dispatch_request

    def send():
        with site.app.test_request_context("/", method="POST") as context:
            arguments = [context] if signature(dispatch).parameters else []  # since Flask 3.2
            assert dispatch(*arguments).is_streamed

    copy_context().run(send)  # since Flask 3.2, such a stream leaves its context behind
    gc.collect()
    assert site.events == ["claimed"]  # the collector may run where a lock is held
    site.engine.keeper.tick()
    assert site.events == ["claimed", "completed"]


@pytest.mark.parametrize("status", [200, 404])
def test_the_head_of_a_streamed_response_settles(status):
    site = stream(no_repeat_submit(10, methods=["GET", "HEAD"]), status=status)
    answers = [site.submit("HEAD").status_code for _ in range(3)]
    assert answers == ([200, 409, 409] if status == 200 else [404, 404, 404])


class Cut(BaseException):
    """A time-out of gevent's kind, in a receiver of the signal."""


def test_a_claim_that_is_cut_off_before_its_view_begins_is_free(guard):
    site = Site(lambda: "done", guard)
    cut = [True]

    def receive(app, **_):
        if cut:
            cut.clear()
            raise Cut

    with claimed.connected_to(receive, site.app):
        with pytest.raises(Cut):
            site.submit()
        for _ in range(3):
            site.clock.advance(9)
            site.engine.keeper.tick()
    spent = guard == "token"  # and it stays spent, as after any failure
    assert (site.runs, site.submit().status_code) == (0, 409 if spent else 200)


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_a_key_whose_claim_is_cut_off_before_its_view_begins_is_free(guarantee):
    keyed = KeyedApp(guarantee=guarantee)

    def receive(app, **_):
        raise Cut

    with claimed.connected_to(receive, keyed.app), pytest.raises(Cut):
        keyed.send()
    assert keyed.verdicts({}, {}) == [200, "replay of 200"]
