"""`once` among the rest: guards around it and within, logs, signals, figures, answers."""

import copy
import pickle

import pytest
from helpers.once_operations import OnceApp

from flask_idempotence import (
    KeyInProgress,
    Refusal,
    ResponseNotStored,
    Running,
    StoreError,
    current_guard,
)
from flask_idempotence.response import refusals
from flask_idempotence.testing import record_signals


@pytest.fixture
def once_app():
    return OnceApp()


def guard():
    return current_guard.mode, current_guard.key


def test_blocks_may_end_in_another_order_than_they_began(once_app):
    with once_app.app.app_context():
        first, second = once_app.once("1"), once_app.once("2")
        first.__enter__()
        outer = guard()
        second.__enter__()
        inner = guard()
        assert inner not in (outer, (None, None))
        first.__exit__(None, None, None)
        assert guard() == inner
        current_guard.release()
        second.__exit__(None, None, None)
        assert guard() == (None, None)
    assert [once_app.word("1"), once_app.word("2")] == ["done", "first"]


def test_signals_tell_what_happened_with_the_scope_for_the_endpoint(once_app):
    with record_signals(once_app.app) as told:
        once_app.word()
        once_app.word()
        with pytest.raises(ValueError, match="no"):
            once_app.end(ValueError("no"), "2")
        with once_app.app.app_context(), once_app.once("3"):
            assert once_app.word("3") == "running"
        with once_app.app.app_context(), once_app.once("4"):
            once_app.store.clear("")
            assert once_app.word("4") == "first"
    assert [(name, told["mode"], told["endpoint"]) for name, told in told.events] == [
        (name, "once", "invoice")
        for name in [
            *("claimed", "completed", "replayed", "claimed", "released"),
            *("claimed", "rejected", "completed"),
            *("claimed", "claimed", "completed", "lease_lost"),
        ]
    ]
    assert told.events[0][1]["lease"] == 30
    assert isinstance(told.events[6][1]["error"], Running)
    assert told.events[-1][1]["during"] == "settle"
    assert {len(told["key"]) for _, told in told.events} == {12}


def answer_of(once_app):
    @once_app.app.post("/")
    def view():
        with once_app.once() as job:
            return {"result": job.result}

    return once_app.app.test_client().post("/")


def test_running_that_nobody_catches_answers_a_request_by_the_settings():
    once_app = OnceApp(
        IDEMPOTENCE_PROBLEM_BASE="https://shop.test/",
        IDEMPOTENCE_DUPLICATE_STATUS=200,  # it is not done: no duplicate
    )
    with once_app.app.app_context(), once_app.once():
        answer = answer_of(once_app)
    assert (answer.status_code, answer.headers["Retry-After"]) == (409, "1")
    assert answer.content_type == "application/problem+json"
    assert answer.json == {
        "type": "https://shop.test/key-in-progress",
        "title": "Operation in progress",
        "status": 409,
        "detail": "This operation is being carried out already. Try again soon.",
    }


def test_a_result_that_is_not_stored_answers_by_the_settings():
    once_app = OnceApp(IDEMPOTENCE_PROBLEM_BASE="https://shop.test/")
    once_app.work(result="x" * 1_100_000)
    assert answer_of(once_app).json["type"] == f"https://shop.test/{ResponseNotStored.slug}"


def test_a_handler_of_keys_in_progress_takes_it_and_keeps_retry_after(once_app):
    once_app.app.register_error_handler(KeyInProgress, lambda error: ("busy", 409))
    with once_app.app.app_context(), once_app.once():
        answer = answer_of(once_app)
    assert (answer.text, answer.headers["Retry-After"]) == ("busy", "1")


REFUSALS = [
    error
    for error in vars(refusals).values()
    if isinstance(error, type) and issubclass(error, Refusal) and hasattr(error, "slug")
]


@pytest.mark.parametrize("error", REFUSALS)
def test_every_refusal_survives_a_journey_between_processes(error):
    first = error("for this caller", **({} if error is Running else {"retry_after": 7}))
    first.problem_base, first.code = "https://shop.test/", 429
    for again in (pickle.loads(pickle.dumps(first)), copy.deepcopy(first)):
        assert type(again) is error
        assert vars(again) == vars(first)
        assert (again.get_body(), again.get_headers()) == (first.get_body(), first.get_headers())
        assert again.args == first.args


def test_what_is_left_of_the_lease_travels_along():
    again = pickle.loads(pickle.dumps(Running(remaining=12.5)))
    assert (again.remaining, again.retry_after, str(again)) == (12.5, 1, str(Running()))
    assert pickle.loads(pickle.dumps(StoreError("away", sent=False))).sent is False
