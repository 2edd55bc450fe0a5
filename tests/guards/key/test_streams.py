"""Responses that are not kept, streamed or too large: live the first time, and never run again."""

import contextlib
from typing import get_args

import pytest
from flask import Response, request, stream_with_context
from helpers.apps import KeyedApp, fail, killed, verdict

from flask_idempotence import current_guard, no_repeat_submit
from flask_idempotence.config.settings import Guarantee


@pytest.mark.parametrize("guarantee", get_args(Guarantee))
def test_a_stream_goes_out_live_and_is_not_run_again(guarantee):
    keyed = KeyedApp(lambda: Response(iter(["one ", "two"])), guarantee=guarantee)
    first = keyed.send(buffered=False)
    assert keyed.verdicts({}) == ["key-in-progress"]
    assert (first.text, "Idempotent-Replayed" in first.headers) == ("one two", False)
    first.close()
    assert keyed.verdicts({}, {}) == ["response-not-stored"] * 2
    assert keyed.runs == 1


def cut_off(keyed, **options):
    """Send a request, and close its response after the first part."""
    answer = keyed.send(buffered=False, **options)
    assert next(answer.response) == b"one "
    answer.close()


@pytest.mark.parametrize("guarantee", get_args(Guarantee))
def test_a_stream_that_its_client_cut_off_has_an_unknown_outcome(guarantee):
    keyed = KeyedApp(lambda: Response(iter(["one ", "two"])), guarantee=guarantee, ttl=60)
    keyed.add("/rejects", lambda: Response(iter(["one ", "two"])), on_repeat="reject")
    cut_off(keyed)
    cut_off(keyed, path="/rejects")
    keyed.clock.advance(59)
    assert keyed.verdicts({}, {}, {"path": "/rejects"}) == ["outcome-unknown"] * 3
    assert keyed.verdicts({"json": [2]}) == ["key-reused"]
    keyed.clock.advance(2)
    assert keyed.send().text == "one two"


DECISIONS = {
    "release": 200,
    "keep": "response-not-stored",
    "raise": 200,
    "": "outcome-unknown",
}


@pytest.mark.parametrize("guards", [(), (no_repeat_submit(0, key=lambda: 1),)])
@pytest.mark.parametrize("decision", DECISIONS)
def test_a_generator_that_is_cut_off_decides_in_its_finally(decision, guards):
    def body():
        try:
            yield "one "
            yield "two"
        finally:
            if decision == "raise":
                fail()
            elif decision:
                getattr(current_guard, decision)()

    keyed = KeyedApp()
    keyed.add("/work", lambda: Response(stream_with_context(body())), guards=guards)

    def attempt():
        answer = keyed.send(path="/work", buffered=False)
        next(answer.response)
        with contextlib.suppress(ValueError):
            answer.close()
        return answer.headers.get("Idempotence-Refusal", answer.status_code)

    found = []
    for _ in range(3):
        found.append(attempt())
        keyed.engine.keeper.tick()
    assert found == [200, DECISIONS[decision], DECISIONS[decision]]


def test_a_stream_of_a_transient_status_runs_again():
    keyed = KeyedApp(lambda: Response(iter("no"), 503))
    assert keyed.verdicts({}, {}, {}) == [503, 503, 503]


@pytest.mark.parametrize("guarantee", get_args(Guarantee))
def test_a_stream_that_breaks_off_is_a_failure(guarantee):
    def breaks_off():
        yield "one"
        fail()

    keyed = KeyedApp(lambda: Response(breaks_off()), guarantee=guarantee)
    with pytest.raises(ValueError, match="the view failed"):
        keyed.send()
    if guarantee == "at-most-once":
        assert keyed.verdicts({}, {}) == ["outcome-unknown"] * 2
    else:
        with pytest.raises(ValueError, match="the view failed"):
            keyed.send()


def test_a_stream_that_is_killed_is_killed():
    def is_killed():
        yield "one"
        killed()

    keyed = KeyedApp(lambda: Response(is_killed()), guarantee="at-most-once")
    with contextlib.suppress(SystemExit):
        keyed.send()
    assert keyed.verdicts({}) == ["key-in-progress"]
    keyed.clock.advance(31)
    assert keyed.verdicts({}) == ["outcome-unknown"]


def test_a_streamed_status_without_a_body_is_done():
    keyed = KeyedApp(lambda: Response(iter(["one ", "two"]), 204))
    assert keyed.verdicts({}, {}) == [204, "response-not-stored"]


@pytest.mark.parametrize("status", [200, 422])
def test_a_body_of_the_greatest_size_is_kept_and_a_larger_one_is_not(status):
    settings = {"IDEMPOTENCE_KEY_MAX_BODY": 1000}
    keyed = KeyedApp(lambda: (b"x" * int(request.args["size"]), status), settings=settings)
    for size, repeat in [(999, "replay"), (1000, "replay"), (1001, None)]:
        sent = {"key": str(size), "path": f"/?size={size}"}
        first, second = (keyed.send(**sent) for _ in range(2))
        assert (first.status_code, len(first.data)) == (status, size)
        if repeat:
            assert second.data == first.data
        else:
            assert (second.status_code, verdict(second)) == (409, "response-not-stored")
    assert keyed.runs == 3


def test_a_large_body_of_a_transient_status_runs_again():
    keyed = KeyedApp(lambda: (b"xx", 503), settings={"IDEMPOTENCE_KEY_MAX_BODY": 1})
    assert keyed.verdicts({}, {}, {}) == [503, 503, 503]
