"""`once` among the rest: guards around it and within, logs, signals, figures, answers."""

import copy
import io
import logging
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
    idempotent,
    no_repeat_submit,
)
from flask_idempotence.logs import LogFilter
from flask_idempotence.response import refusals
from flask_idempotence.testing import record_signals


@pytest.fixture
def once_app():
    return OnceApp()


def guard():
    return current_guard.mode, current_guard.key


def test_the_block_is_what_current_guard_is_about(once_app):
    assert guard() == (None, None)
    with once_app.app.app_context():
        with once_app.once():
            assert current_guard.mode == "once"
            assert len(current_guard.key) == 12
            assert (current_guard.replayed, current_guard.lost) == (False, False)
            assert guard()[1] in next(iter(once_app.store.scan("")))
        assert guard() == (None, None)
        with once_app.once() as job:
            assert not job.first
            assert guard() == (None, None)


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


def test_ensure_held_renews_the_blocks_around_too(once_app):
    with once_app.app.app_context(), once_app.once("outer"), once_app.once("inner"):
        once_app.clock.advance(25)
        current_guard.ensure_held()
        once_app.clock.advance(25)
        assert [once_app.word("outer"), once_app.word("inner")] == ["running", "running"]


def test_of_a_guarded_view_and_a_block_each_may_be_the_inner_one(once_app):
    @idempotent
    def inner():
        modes.append(current_guard.mode)
        current_guard.release()
        return "done"

    @once_app.app.post("/")
    @no_repeat_submit(60)
    def view():
        modes.append(current_guard.mode)
        with once_app.once("1"):
            modes.append(current_guard.mode)
            current_guard.release()
        with once_app.once("2"):
            answer = inner()
            modes.append(current_guard.mode)
        modes.append(current_guard.mode)
        return answer

    modes, client, key = [], once_app.app.test_client(), {"Idempotency-Key": "1"}
    with once_app.app.app_context(), once_app.once("3"):
        assert [client.post("/", headers=key).status_code for _ in range(2)] == [200, 409]
        modes.append(current_guard.mode)
    assert modes == ["lock", "once", "key", "once", "lock", "once"]
    assert [once_app.word(id_) for id_ in "123"] == ["first", "done", "done"]


def test_what_a_consumer_logs_bears_the_key(once_app):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(LogFilter())
    handler.setFormatter(logging.Formatter("%(idempotence_mode)s %(idempotence_key)s %(message)s"))
    consumer = logging.Logger("consumer")
    consumer.addHandler(handler)
    with once_app.app.app_context():
        with once_app.once():
            consumer.warning("sending")
            key = current_guard.key
        consumer.warning("after")
    assert stream.getvalue().splitlines() == [f"once {key} sending", "- - after"]


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


def test_the_commands_know_the_mode(once_app):
    def invoke(*arguments):
        done = once_app.app.test_cli_runner().invoke(args=["idempotence", *arguments])
        assert done.exit_code == 0, done.output
        return [line.split("\t") for line in done.stdout.splitlines()]

    once_app.word()
    once_app.word("2", scope="mail")
    with once_app.app.app_context(), once_app.once("3"):
        counted = [row[:5] for row in invoke("stats", "--mode", "once")]
        assert ["once", "invoice", "1", "0", "1"] in counted
        assert ["once", "mail", "0", "0", "1"] in counted
        [row] = invoke("inspect", current_guard.key)
        assert row[1:4] == ["once", "invoice", "live"]
        invoke("purge", "--mode", "once", "--endpoint", "mail", "--yes")
        assert once_app.word("2", scope="mail") == "first"
        invoke("purge", "--mode", "once", "--yes")
        assert once_app.word("3") == "running"
    assert [once_app.word(), once_app.word("3")] == ["first", "done"]


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
