"""Each check finds what it has to find, and nothing else."""

from dataclasses import replace

import pytest
from helpers.journal import Journal

from .checks import (
    CHECKS,
    a_claim_keeps_others_out_for_its_lease,
    all_keys_answer_after_healing,
    at_most_once_runs_nothing_twice,
    no_request_exceeds_its_deadlines,
    nothing_acknowledged_is_forgotten,
    only_expected_answers_come,
    replays_are_of_runs_that_ended,
)
from .history import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    IN_PROGRESS,
    RAN,
    REPLAYED,
    UNAVAILABLE,
    UNKNOWN,
    Effect,
    Effects,
    History,
    Request,
    read_history,
)
from .report import figures_of

ONCE, LEAST = f"{AT_MOST_ONCE}/1", f"{AT_LEAST_ONCE}/1"


def asked(begin, answer, run=None, *, key=ONCE, end=None, host="app1", stored=True):
    return Request(key, host, begin, begin + 0.1 if end is None else end, answer, run, stored)


def ran(begin, run, *, key=ONCE, end=None, host="app1"):
    """A run from 0.02 s after its request's begin to 0.02 s before the request's end."""
    end = begin + 0.1 if end is None else end
    return Effect(key, host, run, begin, begin + 0.02, end - 0.02)


def history(*events, **settings):
    return History(
        [event for event in events if isinstance(event, Request)],
        [event for event in events if isinstance(event, Effect)],
        **{"lease": 3.0, "deadline": 1.0, "struck": 2.0, "healed": 4.0, **settings},
    )


def usual(key=ONCE, run="a"):
    """One run; a repeat in progress, two that are refused while the fault lasts, and replays."""
    return [
        ran(1, run, key=key, end=1.5),
        asked(1, RAN, run, key=key, end=1.5),
        asked(1.1, IN_PROGRESS, key=key, host="app2"),
        asked(2, UNAVAILABLE, key=key),
        asked(3, UNAVAILABLE, key=key, end=4.1, host="app2"),
        asked(5, REPLAYED, run, key=key),
        asked(5, REPLAYED, run, key=key, host="app2"),
    ]


def failed(events, **settings):
    return {check for check in CHECKS if list(check(history(*events, **settings)))}


@pytest.mark.parametrize("key", [ONCE, LEAST])
def test_the_usual_history_is_accepted(key):
    assert failed(usual(key)) == set()


def test_a_second_run_at_most_once_is_rejected_however_late():
    assert failed([*usual(), ran(900, "b")]) == {at_most_once_runs_nothing_twice}


def test_runs_of_two_keys_are_no_second_run():
    assert failed([*usual(), *usual(ONCE + "0", "b")]) == set()


def test_two_owners_at_once_are_rejected():
    both = [
        ran(1, "a", key=LEAST),
        ran(1.01, "b", key=LEAST, host="app2"),
        asked(1, RAN, "a", key=LEAST, stored=False),
        asked(5, REPLAYED, "b", key=LEAST),
    ]
    assert failed(both) == {a_claim_keeps_others_out_for_its_lease}


@pytest.mark.parametrize(("begin", "is_early"), [(3.9, True), (4.0, False)])
def test_a_second_owner_is_rejected_before_the_lease_of_the_first_is_over(begin, is_early):
    died = [ran(1, "a", key=LEAST), asked(1, "unexpected 500", key=LEAST)]
    again = [ran(begin, "b", key=LEAST), asked(begin, RAN, "b", key=LEAST)]
    found = a_claim_keeps_others_out_for_its_lease(history(*died, *again))
    assert bool(list(found)) is is_early


@pytest.mark.parametrize("key", [ONCE, LEAST])
def test_a_completion_is_forgotten_if_a_repeat_runs_again(key):
    events = [*usual(key), ran(9, "b", key=key), asked(9, RAN, "b", key=key)]
    assert nothing_acknowledged_is_forgotten in failed(events)


def test_a_completion_is_forgotten_if_a_repeat_gets_outcome_unknown():
    assert failed([*usual(), asked(9, UNKNOWN)]) == {nothing_acknowledged_is_forgotten}


def test_a_completion_is_forgotten_if_a_repeat_gets_the_response_of_another_run():
    events = [*usual(LEAST), ran(6, "b", key=LEAST), asked(9, REPLAYED, "b", key=LEAST)]
    assert nothing_acknowledged_is_forgotten in failed(events)


def test_a_completion_that_the_store_did_not_confirm_may_be_forgotten():
    events = [
        ran(1, "a", key=LEAST),
        asked(1, RAN, "a", key=LEAST, stored=False),
        ran(5, "b", key=LEAST),
        asked(5, RAN, "b", key=LEAST),
    ]
    assert failed(events) == set()


def test_a_request_that_overlaps_the_completion_may_have_come_before_it():
    events = [ran(4.5, "a"), asked(4.5, RAN, "a", end=5), asked(4.6, REPLAYED, "a", end=5.2)]
    assert failed(events) == set()


@pytest.mark.parametrize(
    "effect",
    [[], [ran(1, "z", key=LEAST)], [replace(ran(1, "z"), end=None)], [ran(8, "z", end=9)]],
    ids=["of nothing", "of another key", "of a run that was cut short", "before the end"],
)
def test_a_replay_must_be_of_a_run_that_ended(effect):
    events = history(*effect, asked(8, REPLAYED, "z"))
    assert list(replays_are_of_runs_that_ended(events))


@pytest.mark.parametrize("last", [UNAVAILABLE, IN_PROGRESS])
def test_a_key_that_gets_no_final_answer_after_healing_is_rejected(last):
    assert failed([*usual(), asked(9, last)]) == {all_keys_answer_after_healing}


def test_a_key_that_was_not_sent_after_healing_is_rejected():
    assert failed(usual(), healed=6.0) == {all_keys_answer_after_healing}


def test_outcome_unknown_is_a_final_answer_at_most_once_only():
    assert failed([asked(9, UNKNOWN)]) == set()
    assert failed([asked(9, UNKNOWN, key=LEAST)]) == {all_keys_answer_after_healing}


def test_an_error_of_the_server_is_rejected():
    assert only_expected_answers_come in failed([*usual(), asked(3, "unexpected 500 ERROR")])


def test_a_request_that_hangs_is_rejected():
    assert failed([*usual(), asked(6, REPLAYED, "a", end=8.6)]) == {
        no_request_exceeds_its_deadlines
    }


def test_the_time_of_a_view_and_that_of_a_pause_are_no_hanging():
    slow = [ran(1, "a", end=9), asked(1, RAN, "a", end=9), asked(10, REPLAYED, "a")]
    assert failed(slow) == set()
    paused = [*usual(), asked(6, REPLAYED, "a", end=16)]
    assert failed(paused, paused=[("app1", 6.05, 15.9)]) == set()
    assert failed(paused, paused=[("app2", 6.05, 15.9)]) == {no_request_exceeds_its_deadlines}


def test_the_report_counts_what_the_checks_find():
    again = [ran(9, "b"), asked(9, RAN, "b"), asked(9.5, UNKNOWN, key=ONCE + "0")]
    figures = figures_of(history(*usual(), *again))
    counts = ("runs", "503", "twice, at-most-once", "lost records", "unknown")
    assert [figures[name] for name in counts] == [2, 2, 1, 1, 1]
    # From the fault to the end of the second run.
    assert figures["no run anywhere"] == pytest.approx(7.1)
    assert figures["a host without answers"] == pytest.approx(4.0)
    later = figures_of(history(*usual(), *again, stopped=9.0))
    assert later["no run anywhere"] == pytest.approx(7.1)
    # A gap that begins when the clients stop is none.
    assert figures_of(history(*usual(), *again, stopped=2.5))["no run anywhere"] == 0


def test_a_history_is_read_as_it_was_written(tmp_path):
    journal = Journal(tmp_path)
    Effects(journal, "app1").run(ONCE, "a", asked=1.0, seconds=0)
    request = asked(1, RAN, "a")
    journal.note("request", **vars(request))
    read = read_history(tmp_path)
    assert read.requests == [request]
    [effect] = read.effects
    assert (effect.key, effect.run, effect.asked) == (ONCE, "a", 1.0)
    assert 1.0 < effect.begin <= effect.end
