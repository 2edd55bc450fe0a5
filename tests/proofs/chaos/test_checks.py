"""The checks themselves: each finds what it is there for, and believes no poor excuse."""

from dataclasses import replace
from pathlib import Path

import pytest

from . import checks
from .history import EXITED, KILLED, STOPPED, Attempt, Fault, History, Run
from .report import violations_in

LEASE, INTERVAL = 3.0, 2.0


class Story:
    """A history in the making: requests that run, at a time, for an operation."""

    def __init__(self):
        self.attempts, self.runs, self.faults, self.stalls, self.given_up = [], [], [], [], []

    def run(self, at, operation="least/1/anna", *, takes=0.1, end="success", pid=1, **changes):
        number = len(self.runs) + 1
        run = Run(f"run {number}", operation, pid, f"attempt {number}", at, at + 0.01, at + 0.02)
        run.end, run.ended = end, at + takes if end else None
        self.runs.append(replace(run, **changes))
        return self.runs[-1]

    def answer(self, run, at, *, replayed=False, **changes):
        _, number, user = run.operation.split("/")
        body = {"user": user, "number": int(number), "run": run.id, "attempt": run.attempt}
        name = f"{run.attempt} again at {at}" if replayed else run.attempt
        attempt = Attempt(name, run.operation, at - 0.1, at, 201, body=body, replayed=replayed)
        self.attempts.append(replace(attempt, **changes))

    def refusal(self, operation, slug, status=409, **changes):
        self.attempts.append(Attempt("refused", operation, 1, 2, status, slug, **changes))

    def fault(self, kind, begun, ended, pid=None):
        self.faults.append(Fault(kind, begun, ended, pid))

    @property
    def history(self):
        runs = sorted(self.runs, key=lambda run: run.begun)
        more = (self.stalls, self.given_up, LEASE, INTERVAL)
        return History(self.attempts, runs, self.faults, *more)

    @property
    def found(self):
        return {name for name, found in violations_in(self.history).items() if found}


@pytest.fixture
def story():
    return Story()


def test_a_history_in_which_all_went_well_has_no_violations(story):
    for place, mode in enumerate(checks.EXPECTED):
        for user in ("anna", "berta"):
            run = story.run(place, f"{mode}/1/{user}")
            story.answer(run, place + 0.2)
            if mode in ("once", "least", "patient"):
                story.answer(run, place + 0.5, replayed=True)
    story.refusal("once/2/anna", "outcome-unknown")
    story.refusal("lock/1/anna", "repeat-submit")
    story.refusal("least/1/anna", "store-unavailable", 503)
    assert story.found == set()


@pytest.mark.parametrize("end", ["success", "failure", "exit", ""])
def test_at_most_once_knows_no_excuse(story, end):
    story.run(0, "once/1/anna", end=end)
    story.fault(KILLED, 0.05, 0.05, pid=1)
    story.run(10, "once/1/anna")
    assert "at_most_once_ran_nothing_twice" in story.found


@pytest.mark.parametrize("mode", ["token", "restoring"])
def test_a_token_that_is_spent_twice_is_found(story, mode):
    story.run(0, f"{mode}/1/anna")
    story.run(10, f"{mode}/1/anna")
    assert story.found == {"tokens_are_spent_at_most_once"}


def test_a_failure_puts_a_token_back_once_and_only_where_the_route_says_so(story):
    for mode in ("token", "restoring"):
        story.run(0, f"{mode}/1/anna", end="failure", effect=None)
        story.run(1, f"{mode}/1/anna")
    story.run(0, "restoring/2/anna", end="failure", effect=None)
    story.run(1, "restoring/2/anna", end="failure", effect=None)
    story.run(2, "restoring/2/anna")
    found = checks.tokens_are_spent_at_most_once(story.history)
    assert [violation.operation for violation in found] == ["token/1/anna", "restoring/2/anna"]


def test_a_success_without_its_effect_is_found(story):
    story.answer(story.run(0, effect=None), 1)
    assert story.found == {"nothing_is_lost"}


def test_a_client_that_was_never_answered_is_found(story):
    story.given_up.append("least/1/anna")
    assert story.found == {"nothing_is_lost"}


@pytest.mark.parametrize(
    "fault",
    [
        (KILLED, 0.05, 0.05, 1),
        (EXITED, 0.05, 0.05, 1),
        (STOPPED, 0.05, 4.5, 1),
        ("redis away", 0.05, 4.5, None),
    ],
)
def test_a_second_run_is_explained_by_what_happened_to_the_first(story, fault):
    story.run(0, end="")
    story.run(4)
    assert story.found == {"nothing_runs_twice_without_a_reason"}
    story.fault(*fault)
    assert story.found == set()


def test_a_second_run_is_explained_by_a_standstill_that_the_process_noticed(story):
    story.run(0)
    story.run(4)
    story.stalls.append(Fault("standstill", 0.05, 3.5, 1))
    assert story.found == set()


@pytest.mark.parametrize(
    "fault",
    [
        (KILLED, 0.05, 0.05, 2),  # somebody else's worker
        (KILLED, 9.0, 9.0, 1),  # later
        (STOPPED, 0.05, 4.5, 2),
        ("worker stopped briefly", 0.05, 0.6, 1),
        ("redis killed", 0.05, 0.6, None),
        ("bytes dropped", 1.0, 1.84, None),  # just when the first renewal is due
    ],
)
def test_what_did_not_happen_to_the_first_or_not_for_long_explains_nothing(story, fault):
    story.run(0)
    story.run(4)
    story.fault(*fault)
    assert story.found == {"nothing_runs_twice_without_a_reason"}


def test_several_short_outages_make_a_long_one(story):
    story.run(0)
    story.run(4)
    story.fault("redis killed", 0.5, 1.2)
    story.fault("bytes dropped", 1.8, 2.4)
    assert story.found == set()


def test_what_came_when_the_client_had_its_answer_explains_nothing(story):
    first = story.run(0)
    story.answer(first, 0.2)
    story.run(4)
    story.fault(KILLED, 1, 1, pid=1)
    assert story.found == {"nothing_runs_twice_without_a_reason"}


def test_an_answer_that_says_it_is_not_stored_yet_leaves_the_question_open(story):
    first = story.run(0)
    story.answer(first, 0.2, stored=False)
    story.run(4)
    story.fault(KILLED, 1, 1, pid=1)
    assert story.found == set()


@pytest.mark.parametrize(("mode", "least"), [("least", LEASE), ("lock", INTERVAL)])
def test_a_run_before_the_first_ones_lease_is_over_is_found_whatever_happened(story, mode, least):
    story.run(0, f"{mode}/1/anna", end="")
    story.fault(KILLED, 0.1, 0.1, pid=1)
    story.run(least - 0.5, f"{mode}/1/anna", pid=2)
    assert story.found == {"nothing_runs_before_the_lease_is_over"}


def test_a_claim_that_was_granted_before_its_process_froze_may_begin_later(story):
    story.run(0, pid=2, begun=5.0)
    story.run(3.5, pid=1)
    story.fault(STOPPED, 0.005, 4.9, pid=2)
    assert story.found == set()


def test_a_failed_run_frees_its_key_at_once(story):
    for mode in ("least", "lock"):
        story.run(0, f"{mode}/1/anna", end="failure", effect=None)
        story.run(0.5, f"{mode}/1/anna")
    assert story.found == set()


@pytest.mark.parametrize("at", [5.0, 7.0])
def test_a_lock_that_ends_before_its_view_or_at_once_after_it_is_found(story, at):
    story.run(0, "lock/1/anna", takes=6.0)
    story.run(at, "lock/1/anna")
    assert story.found == {"locks_hold_while_their_view_runs"}
    story.runs[1] = replace(story.runs[1], arrived=8.0, begun=8.1)
    assert story.found == set()


def test_a_run_of_what_was_replayed_before_is_found(story):
    first = story.run(0)
    story.answer(first, 0.5, replayed=True)
    story.run(4)
    story.fault(KILLED, 0.1, 0.1, pid=1)
    assert story.found == {"nothing_runs_after_it_was_replayed"}


def test_another_users_answer_is_found(story):
    theirs = story.run(0, "least/1/berta")
    story.answer(theirs, 1, replayed=True, operation="least/1/anna")
    assert story.found == {"nobody_gets_anothers_answer", "answers_are_equal"}


def test_a_token_taken_from_another_user_is_found(story):
    thief = story.run(0, "token/1/dora")
    story.answer(thief, 1, stolen=True)
    assert story.found == {"nobody_gets_anothers_answer"}


def test_replays_that_differ_from_the_first_answer_or_from_each_other_are_found(story):
    first = story.run(0)
    story.answer(first, 1, replayed=True)
    other = {**story.attempts[0].body, "attempt": "another"}
    story.answer(first, 2, replayed=True, body=other)
    assert story.found == {"answers_are_equal"}
    story.attempts.pop()
    assert story.found == set()
    story.fault(KILLED, 0.05, 0.05, pid=1)
    story.answer(story.run(-5), 3, replayed=True)
    assert "answers_are_equal" in story.found


def test_a_replay_that_is_not_marked_is_found(story):
    story.answer(story.run(0), 1, id="another attempt")
    assert story.found == {"answers_are_equal"}


@pytest.mark.parametrize(
    ("operation", "slug"), [("once/1/anna", "key-in-progress"), ("lock/1/anna", "repeat-submit")]
)
def test_a_key_that_is_still_taken_when_all_is_calm_is_found(story, operation, slug):
    story.refusal(operation, slug)
    assert story.found == set()
    story.refusal(operation, slug, probe=True)
    assert story.found == {"no_key_stays_wedged"}
    story.run(1.5, operation, attempt="refused")  # the first time it was asked for it ran
    assert story.found == set()


@pytest.mark.parametrize(
    ("operation", "slug", "status"),
    [
        ("least/1/anna", "key-reused", 422),
        ("least/1/anna", "outcome-unknown", 409),
        ("lock/1/anna", "", 500),
        ("once/1/anna", "", 503),
        ("token/1/anna", "token-invalid", 400),
    ],
)
def test_an_answer_that_does_not_fit_is_found(story, operation, slug, status):
    story.refusal(operation, slug, status)
    assert story.found == {"only_expected_answers_come"}


def test_every_check_has_been_seen_to_find_something():
    text = Path(__file__).read_text(encoding="utf-8")
    assert [check for check in checks.CHECKS if f'"{check.__name__}"' not in text] == []
