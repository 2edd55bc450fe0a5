"""`once` among the rest: guards around it and within, logs, signals, figures, answers."""

import copy
import io
import logging
import pickle
from contextlib import ExitStack
from datetime import timedelta

import pytest
from helpers.once_operations import Shift
from observability.test_metrics import of
from prometheus_client import CollectorRegistry

from flask_idempotence import (
    KeyInProgress,
    LeaseLost,
    Refusal,
    ResponseNotStored,
    Running,
    StoreError,
    current_guard,
    idempotent,
    no_repeat_submit,
)
from flask_idempotence.logs import LogFilter
from flask_idempotence.metrics import Metrics
from flask_idempotence.response import refusals
from flask_idempotence.testing import record_signals


@pytest.fixture
def shift():
    return Shift()


def guard():
    return current_guard.mode, current_guard.key


def test_the_block_is_what_current_guard_is_about(shift):
    assert guard() == (None, None)
    with shift.app.app_context():
        with shift.once():
            assert current_guard.mode == "once"
            assert len(current_guard.key) == 12
            assert (current_guard.replayed, current_guard.lost) == (False, False)
            assert guard()[1] in next(iter(shift.store.scan("")))
        assert guard() == (None, None)
        with shift.once() as job:
            assert not job.first
            assert guard() == (None, None)


def test_the_same_operation_within_itself_is_told_that_it_runs(shift):
    assert "running" in nested(shift, "1", "1")
    assert shift.runs == 1


def nested(shift, outer, inner):
    with shift.app.app_context(), shift.once(outer) as job:
        shift.runs += job.first
        return shift.word(inner)


def test_another_operation_within_is_its_own(shift):
    with shift.app.app_context(), shift.once("outer"):
        outer = guard()
        with shift.once("inner"):
            assert guard() not in (outer, (None, None))
            current_guard.release()
        assert guard() == outer
    assert [shift.word("outer"), shift.word("inner")] == ["done", "first"]


def test_blocks_may_end_in_another_order_than_they_began(shift):
    with shift.app.app_context():
        first, second = ExitStack(), ExitStack()
        first.enter_context(shift.once("1"))
        second.enter_context(shift.once("2"))
        inner = guard()
        first.close()
        assert guard() == inner
        second.close()
        assert guard() == (None, None)
    assert [shift.word("1"), shift.word("2")] == ["done", "done"]


def test_a_block_knows_when_its_lease_is_lost(shift):
    with shift.app.app_context(), shift.once():
        current_guard.ensure_held()
        shift.store.clear("")
        with pytest.raises(LeaseLost):
            current_guard.ensure_held()
        assert current_guard.lost


def test_ensure_held_renews_the_blocks_around_too(shift):
    with shift.app.app_context(), shift.once("outer"), shift.once("inner"):
        shift.clock.advance(25)
        current_guard.ensure_held()
        shift.clock.advance(25)
        assert [shift.word("outer"), shift.word("inner")] == ["running", "running"]


def test_a_block_in_a_guarded_view_is_the_inner_one(shift):
    @shift.app.post("/")
    @no_repeat_submit(60)
    def view():
        modes.append(current_guard.mode)
        with shift.once():
            modes.append(current_guard.mode)
            current_guard.release()
        modes.append(current_guard.mode)
        return "done"

    modes, client = [], shift.app.test_client()
    assert [client.post("/").status_code for _ in range(2)] == [200, 409]
    assert modes == ["lock", "once", "lock"]
    assert shift.word() == "first"


def test_a_guarded_view_that_is_called_in_a_block_is_the_inner_one(shift):
    @shift.app.post("/inner")
    @idempotent
    def inner():
        modes.append(current_guard.mode)
        current_guard.release()
        return "done"

    @shift.app.post("/outer")
    def outer():
        with shift.once():
            modes.append(current_guard.mode)
            answer = inner()
            modes.append(current_guard.mode)
        return answer

    modes, client = [], shift.app.test_client()
    client.post("/outer", headers={"Idempotency-Key": "1"})
    assert modes == ["once", "key", "once"]
    assert shift.word() == "done"


def test_so_is_the_view_of_a_request_that_a_block_makes(shift):
    @shift.app.post("/")
    @no_repeat_submit(60)
    def view():
        modes.append(current_guard.mode)
        current_guard.release()
        return "done"

    modes, client = [], shift.app.test_client()
    with shift.app.app_context(), shift.once():
        assert client.post("/").status_code == 200
        modes.append(current_guard.mode)
    assert modes == ["lock", "once"]
    assert shift.word() == "done"
    assert client.post("/").status_code == 200


def test_what_a_consumer_logs_bears_the_key(shift):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(LogFilter())
    handler.setFormatter(logging.Formatter("%(idempotence_mode)s %(idempotence_key)s %(message)s"))
    consumer = logging.Logger("consumer")
    consumer.addHandler(handler)
    with shift.app.app_context():
        consumer.warning("before")
        with shift.once():
            consumer.warning("sending")
            key = current_guard.key
        consumer.warning("after")
    assert stream.getvalue().splitlines() == ["- - before", f"once {key} sending", "- - after"]


def test_signals_tell_what_happened_with_the_scope_for_the_endpoint(shift):
    with record_signals(shift.app) as told:
        shift.word()
        shift.word()
        with pytest.raises(ValueError, match="no"):
            shift.end(ValueError("no"), "2")
        assert nested(shift, "3", "3") == "running"
        with shift.app.app_context(), shift.once("4"):
            shift.store.clear("")
            assert shift.word("4") == "first"
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


def test_figures_have_the_scope_for_the_endpoint(shift):
    registry = CollectorRegistry()
    Metrics(shift.app, registry=registry)
    nested(shift, "1", "1")
    shift.word()
    figures = of("requests_total", registry, "mode", "endpoint", "outcome")
    assert figures == {
        ("once", "invoice", "claimed"): 1,
        ("once", "invoice", "key-in-progress"): 1,
        ("once", "invoice", "replayed"): 1,
    }
    settled = of("settlements_total", registry, "mode", "endpoint", "outcome")
    assert settled == {("once", "invoice", "completed"): 1}


def invoke(shift, *arguments):
    done = shift.app.test_cli_runner().invoke(args=["idempotence", *arguments])
    assert done.exit_code == 0, done.output
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_the_commands_know_the_mode(shift):
    shift.word()
    shift.word("2", scope="mail")
    with shift.app.app_context(), shift.once("3"):
        counted = [row[:5] for row in invoke(shift, "stats", "--mode", "once")]
        assert ["once", "invoice", "1", "0", "1"] in counted
        assert ["once", "mail", "0", "0", "1"] in counted
        [row] = invoke(shift, "inspect", current_guard.key)
        assert row[1:4] == ["once", "invoice", "live"]
        invoke(shift, "purge", "--mode", "once", "--endpoint", "mail", "--yes")
        assert shift.word("2", scope="mail") == "first"
        invoke(shift, "purge", "--mode", "once", "--yes")
        assert shift.word("3") == "running"
    assert [shift.word(), shift.word("3")] == ["first", "done"]


def answer_of(shift, error, **options):
    @shift.app.post("/")
    def view():
        with shift.once(**options) as job:
            return {"result": job.result}

    return shift.app.test_client().post("/")


def test_running_that_nobody_catches_answers_a_request(shift):
    shift.app.config["IDEMPOTENCE_DUPLICATE_STATUS"] = 200  # it is not done: no duplicate
    with shift.app.app_context(), shift.once():
        answer = answer_of(shift, Running)
    assert answer.status_code == 409
    assert answer.content_type == "application/problem+json"
    assert answer.headers["Retry-After"] == "1"
    assert answer.json == {
        "type": "urn:flask-idempotence:key-in-progress",
        "title": "Operation in progress",
        "status": 409,
        "detail": "This operation is being carried out already. Ask again soon.",
    }


@pytest.mark.parametrize("met", [Running, ResponseNotStored])
def test_its_answers_go_by_the_settings(met):
    shift = Shift(IDEMPOTENCE_PROBLEM_BASE="https://shop.test/")
    with shift.app.app_context(), shift.once() as job:
        if met is Running:
            answer = answer_of(shift, met)
        job.result = "x" * 1_100_000
    if met is ResponseNotStored:
        answer = answer_of(shift, met)
    assert answer.json["type"] == f"https://shop.test/{met.slug}"


def test_a_handler_of_keys_in_progress_takes_it_and_keeps_retry_after(shift):
    shift.app.register_error_handler(KeyInProgress, lambda error: ("busy", 409))
    with shift.app.app_context(), shift.once():
        answer = answer_of(shift, Running)
    assert (answer.text, answer.headers["Retry-After"]) == ("busy", "1")


REFUSALS = [
    error
    for error in vars(refusals).values()
    if isinstance(error, type) and issubclass(error, Refusal) and hasattr(error, "slug")
]


@pytest.mark.parametrize("error", REFUSALS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_refusal_survives_a_journey_between_processes(error, protocol):
    first = error("for this caller", **({} if error is Running else {"retry_after": 7}))
    first.problem_base, first.code = "https://shop.test/", 429
    for again in (pickle.loads(pickle.dumps(first, protocol)), copy.deepcopy(first)):
        assert type(again) is error
        assert vars(again) == vars(first)
        assert (again.get_body(), again.get_headers()) == (first.get_body(), first.get_headers())
        assert again.args == first.args


def test_what_is_left_of_the_lease_travels_along():
    again = pickle.loads(pickle.dumps(Running(remaining=12.5)))
    assert (again.remaining, again.retry_after, str(again)) == (12.5, 1, str(Running()))
    assert pickle.loads(pickle.dumps(StoreError("away", sent=False))).sent is False


def test_a_result_that_is_not_stored_is_an_error_only_for_who_reads_it(shift):
    with shift.app.app_context():
        with shift.once(ttl=timedelta(hours=1)) as job:
            job.result = "x" * 1_100_000
        with shift.once() as job:
            assert not job.first
