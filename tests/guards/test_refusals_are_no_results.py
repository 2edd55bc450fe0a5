"""A refusal of an inner guard is no result of the guard around it, under any status."""

import functools

import pytest
from helpers.apps import make_app, no_answer
from helpers.http_transcripts import BLOCK, TranscriptClient
from helpers.refusal_cases import REFUSAL_CASES, RefusalCase
from helpers.repository import REFERENCE, REFUSALS, section
from werkzeug.exceptions import HTTPException

from flask_idempotence import Refusal, idempotent, no_repeat_submit, one_time_token

OUTER = {
    "key, that remembers all": idempotent(
        key="Outer-Key", compare=False, remember=lambda response: True
    ),
    "key, at most once": idempotent(key="Outer-Key", compare=False, guarantee="at-most-once"),
}


def case_of(slug):
    """Return the case of a refusal, and the text of its request."""
    if slug != "store-unavailable":
        [sent] = BLOCK.findall(section(REFERENCE / "errors.md", slug))[:1]
        return REFUSAL_CASES[slug](), sent[2]
    case = REFUSAL_CASES["token-spent"]()
    # The store answers the outer guard, and fails the inner one.
    case.store.take_token = no_answer
    return case, "POST /checkout HTTP/1.1\nIdempotence-Token: <token>\n\n"


def wrap_views(monkeypatch, outer, status):
    """Put a guard around every guarded view of the cases, and let a handler answer refusals."""
    add_views = RefusalCase.add_views

    def add_guards_too(case):
        add_views(case)
        for rule in case.app.url_map.iter_rules():
            if "POST" in rule.methods and rule.endpoint != "login":
                views = case.app.view_functions
                views[rule.endpoint] = outer(views[rule.endpoint])
        if status is not None:
            case.app.register_error_handler(HTTPException, lambda error: ({"error": 1}, status))

    monkeypatch.setattr(RefusalCase, "add_views", add_guards_too)


@pytest.mark.parametrize("slug", REFUSALS)
@pytest.mark.parametrize("status", [None, 200])
@pytest.mark.parametrize("outer", OUTER)
def test_no_refusal_is_a_result_of_the_guard_around_it(monkeypatch, outer, status, slug):
    wrap_views(monkeypatch, OUTER[outer], status)
    case, sent = case_of(slug)
    head, _, body = sent.partition("\n\n")
    sent = f"{head.rstrip()}\nOuter-Key: the-outer-key\n\n{body}"
    client = TranscriptClient(case.app, dict(case.names))
    answers = [client.exchange(sent) for _ in range(2)]
    assert f"Idempotence-Refusal: {slug}\n" in answers[0]
    # It is raised in a view, which may have had its effect.
    is_remembered = outer == "key, at most once" and slug == "lease-lost"
    assert ["Idempotent-Replayed: true" in answer for answer in answers] == [False, is_remembered]
    assert f"Idempotence-Refusal: {slug}\n" in answers[1] or is_remembered


def post(app, key, token="forged"):
    headers = {"Idempotency-Key": key, "Idempotence-Token": token}
    return app.test_client().post("/orders", headers=headers)


def test_at_most_once_remembers_what_a_decorator_answers_in_place_of_a_refusal():
    app, runs = make_app(), []

    def rescue(view):
        @functools.wraps(view)
        def wrapper():
            try:
                return view()
            except Refusal:
                runs.append("rescued")
                return "rescued"

        return wrapper

    view = idempotent(guarantee="at-most-once")(rescue(one_time_token()(lambda: "never")))
    app.add_url_rule("/orders", "order", view, methods=["POST"])
    first, again = post(app, "one"), post(app, "one")
    assert again.headers["Idempotent-Replayed"] == "true"
    assert (first.data, again.data, runs) == (b"rescued", b"rescued", ["rescued"])


def test_at_most_once_remembers_the_refusal_of_a_guard_that_has_let_the_view_run_before():
    app, runs, keys = make_app(), [], ["held", "free", "held"]
    lock = no_repeat_submit(60, key=lambda: keys.pop(0))
    behind_lock = lock(lambda: "never")

    def order():
        runs.append("order")
        return "done" if len(runs) == 1 else behind_lock()

    view = idempotent(guarantee="at-most-once")(lock(order))
    app.add_url_rule("/orders", "order", view, methods=["POST"])
    assert post(app, "another").text == "done"
    first, again = post(app, "one"), post(app, "one")
    for answer in (first, again):
        assert answer.headers["Idempotence-Refusal"] == "repeat-submit"
    assert (again.headers["Idempotent-Replayed"], len(runs)) == ("true", 2)


@pytest.mark.parametrize("failed", [None, lambda response: False])
def test_a_lock_is_released_whatever_its_route_calls_a_failure(failed):
    app = make_app()
    lock = no_repeat_submit(60, failed=failed)
    app.add_url_rule("/orders", "order", lock(one_time_token()(lambda: "done")), methods=["POST"])
    slugs = [post(app, "one").headers["Idempotence-Refusal"] for _ in range(2)]
    assert slugs == ["token-invalid", "token-invalid"]
