"""The checks themselves: each finds what it is there for, and believes no poor excuse.

That they raise no false alarm is what every run of the load shows.
"""

from dataclasses import replace

import pytest

from . import checks
from .history import KILLED, STOPPED, Attempt, Fault, History, Run

LEASE, INTERVAL = 3.0, 2.0
ANNA = "least/1/anna"
ONCE, LOCK, TOKEN, RESTORING = (
    f"{mode}/1/anna" for mode in ("once", "lock", "token", "restoring")
)


def run(at, operation=ANNA, *, end="success", takes=0.1, **changes):
    times = {"arrived": at, "begun": at + 0.01, "effect": at + 0.02}
    ended = at + takes if end else None
    made = Run(f"run {at}", operation, 1, f"attempt {at}", **times, ended=ended, end=end)
    return replace(made, **changes)


def answer(of, at, operation=ANNA, **changes):
    _, number, user = operation.split("/")
    body = {"user": user, "number": int(number), "run": f"run {of}", "attempt": f"attempt {of}"}
    made = Attempt(f"attempt {of}", operation, at - 0.1, at, 201, body=body)
    return replace(made, **changes)


def replay(of, at, operation=ANNA, **changes):
    return answer(of, at, operation, **{"id": f"repeat at {at}", "replayed": True, **changes})


def refusal(slug, operation=ANNA, status=409, at=1, **changes):
    return Attempt(f"attempt {at}", operation, at, at + 1, status, slug, **changes)


def probe(slug, operation=ANNA, status=409):
    return refusal(slug, operation, status, at=20, probe=True)


def killed(at, pid=1):
    return Fault(KILLED, at, at, pid)


def found(*events):
    """Return what is found; that a key was not asked for in the end only where one was."""
    of = {kind: [each for each in events if isinstance(each, kind)] for kind in (Attempt, Run)}
    faults = [each for each in events if isinstance(each, Fault) and each.kind != "standstill"]
    stalls = [each for each in events if isinstance(each, Fault) and each.kind == "standstill"]
    history = History(of[Attempt], of[Run], faults, stalls, lease=LEASE, interval=INTERVAL)
    names = {check.__name__ for check in checks.CHECKS if [*check(history)]}
    return names if any(a.probe for a in of[Attempt]) else names - {"no_key_stays_wedged"}


AT_MOST_ONCE = "at_most_once_ran_nothing_twice"
SPENT = "tokens_are_spent_at_most_once"
LOST = "nothing_is_lost"
TWICE = "nothing_runs_twice_without_a_reason"
LEASED = "nothing_runs_before_the_lease_is_over"
LOCKED = "locks_hold_while_their_view_runs"
FORGOTTEN = "nothing_acknowledged_is_forgotten"
ANOTHERS = "nobody_gets_anothers_answer"
EQUAL = "answers_are_equal"
WEDGED = "no_key_stays_wedged"
EXPECTED = "only_expected_answers_come"
OTHER = {"user": "anna", "number": 1, "run": "run 0", "attempt": "another"}

VIOLATIONS = [
    (AT_MOST_ONCE, [run(0, ONCE), run(10, ONCE)]),
    (AT_MOST_ONCE, [run(0, ONCE, end="failure"), run(10, ONCE)]),
    (SPENT, [run(0, TOKEN, end="failure"), run(1, TOKEN)]),
    (SPENT, [run(0, RESTORING), run(10, RESTORING)]),
    (LOST, [run(0, effect=None), answer(0, 1)]),
    (TWICE, [run(0), run(4)]),
    (TWICE, [run(0), run(4), killed(0.05, pid=2)]),  # somebody else's worker
    (TWICE, [run(0), run(4), killed(9.0)]),  # later
    (TWICE, [run(0), run(4), Fault(STOPPED, 0.05, 4.5, 2)]),
    (TWICE, [run(0), run(4), Fault("worker stopped briefly", 0.05, 0.6, 1)]),
    (TWICE, [run(0), run(4), Fault("bytes dropped", 1.0, 1.84)]),  # when the first renewal is due
    (TWICE, [run(0), answer(0, 0.2), run(4), killed(1)]),
    (LEASED, [run(0, end=""), killed(0.1), run(LEASE - 0.5, pid=2)]),
    (LEASED, [run(0, LOCK, end=""), killed(0.1), run(INTERVAL - 0.5, LOCK, pid=2)]),
    (LOCKED, [run(0, LOCK, takes=6.0), run(7, LOCK)]),
    (FORGOTTEN, [run(0), answer(0, 0.5), run(4), killed(0.05)]),
    (FORGOTTEN, [run(0, ONCE), replay(0, 0.5, ONCE), refusal("outcome-unknown", ONCE)]),
    (FORGOTTEN, [run(-5), run(0), replay(0, 0.5), replay(-5, 6), killed(-4.9)]),
    (ANOTHERS, [run(0, "least/1/berta"), replay(0, 1, body={**OTHER, "user": "berta"})]),
    (ANOTHERS, [run(0, TOKEN), answer(0, 1, TOKEN, stolen=True)]),
    (EQUAL, [run(0), answer(0, 1, id="another")]),  # is not marked as a replay
    (EQUAL, [run(0), replay(0, 1, body=OTHER)]),
    (EQUAL, [run(0), replay(1, 1)]),  # of no run
    (EQUAL, [run(0), replay(0, 0.05)]),  # before the end
    (WEDGED, [probe("key-in-progress", ONCE)]),
    (WEDGED, [refusal("outcome-unknown", ONCE), probe("token-spent", TOKEN)]),  # was not asked for
    (EXPECTED, [refusal("", LOCK, 500)]),
    (EXPECTED, [refusal("", ONCE, 503)]),
]
TOO = {FORGOTTEN: {TWICE}, TWICE: {FORGOTTEN}, ANOTHERS: {EQUAL}, EQUAL: {LOST}}
"""Checks that may find the same."""


@pytest.mark.parametrize(("check", "events"), VIOLATIONS)
def test_a_violation_is_found_by_its_check(check, events):
    assert {check} <= found(*events) <= {check} | TOO.get(check, set())


def test_each_check_has_a_violation_and_a_client_without_an_answer_is_one():
    assert {check for check, _ in VIOLATIONS} == {check.__name__ for check in checks.CHECKS}
    [lost] = checks.nothing_is_lost(History([], [], given_up=[ANNA]))
    assert lost.operation == ANNA


@pytest.mark.parametrize(
    ("seconds", "takes", "stalled", "hangs"),
    [
        (2.6, 0, None, True),
        (2.4, 0, None, False),
        (8, 7.9, None, False),
        (10, 0, 1, False),
        (10, 0, 2, True),  # another host stood still
    ],
)
def test_a_request_that_hangs_is_found(seconds, takes, stalled, hangs):
    of_host = {"sent": 6, "received": 6 + seconds, "pid": 1}
    runs = [run(6, takes=takes)] if takes else []
    attempts = [answer(6, 7, **of_host) if takes else replay(6, 7, **of_host)]
    stalls = [Fault("standstill", 6.05, 5.9 + seconds, stalled)] if stalled else []
    history = History(attempts, runs, stalls=stalls)
    assert bool([*checks.no_request_exceeds_its_deadlines(history)]) == hangs
