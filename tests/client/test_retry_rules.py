"""When a request is sent again: the rules, without a network."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from helpers.callers.http_callers import Answer
from hypothesis import given
from hypothesis import strategies as st

from flask_idempotence.client import RETRIED_STATUSES, Retries, new_key, was_replayed
from flask_idempotence.client.retries import Attempts, put_key, retry_after

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


def refused(slug, **headers):
    return Answer(409, {"Idempotence-Refusal": slug, **headers})


def asks_for(value, **headers):
    return retry_after({"Retry-After": value, **headers}, NOW)


def date(seconds):
    return format_datetime(datetime.fromtimestamp(seconds, UTC), usegmt=True)


@given(st.integers(0, 4 * 10**9), st.integers(0, 4 * 10**9))
def test_a_date_is_compared_with_the_servers_own_clock(then, now):
    assert asks_for(date(then), Date=date(now)) == max(0, then - now)


@given(st.text())
def test_whatever_retry_after_says_it_is_a_wait_or_nothing(text):
    wait = asks_for(text)
    assert wait is None or wait >= 0


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30", 30),
        ("Sunday, 01-Mar-26 12:00:30 GMT", 30),
        ("Sun Mar  1 12:00:30 2026", 30),
        ("9" * 5000, float("inf")),
        *((text, None) for text in ("", "soon", "-1", "1.5", "1,2", "٣", "²")),
        ("Sun, 99 Mar 2026", None),
    ],
)
def test_all_forms_of_a_date_are_understood_and_nonsense_asks_for_nothing(written, seconds):
    assert asks_for(written) == seconds


def test_every_other_answer_is_final_even_with_retry_after():
    passing = {n for n in range(200, 600) if Retries().may_pass(Answer(n, {"Retry-After": "1"}))}
    assert passing == RETRIED_STATUSES


def test_a_conflict_is_final_unless_it_says_that_it_passes():
    """The table of all refusals is in tests/response/test_refusal_table.py."""
    assert not Retries().may_pass(Answer(409, {"Retry-After": "1"}))
    assert Retries().may_pass(refused(" Lease-Lost "))
    assert Retries(statuses={409}).may_pass(Answer(409, {}))
    assert not Retries(statuses={409}).may_pass(refused("key-reused", **{"Retry-After": "5"}))


def test_the_waits_double_up_to_the_longest_and_chance_takes_up_to_half():
    rules = Retries(chance=lambda: 1.0)
    whole = [rules.wait_before(attempt) for attempt in range(2, 11)]
    assert whole == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    least = [Retries(chance=lambda: 0.0).wait_before(attempt) for attempt in range(2, 9)]
    assert least == [wait / 2 for wait in whole[:7]]
    assert sum(least) > 30  # the lease of a process that died
    assert rules.wait_before(10_000) == 30


def waits(rules, answers):
    attempts, found = Attempts(rules, repeatable=True, method="POST", url=""), []
    for answer in answers:
        with attempts.one(()):
            found.append(None if attempts.is_final(answer) else attempts.pause)
    return found


def test_retry_after_is_the_least_wait_to_the_second_and_more_than_the_longest_is_final():
    rules = Retries(longest_wait=10, chance=lambda: 1.0)
    answers = [Answer(503, {"Retry-After": "10"}), Answer(503, {"Retry-After": "11"})]
    assert waits(rules, answers) == [10, None]
    assert waits(rules, [Answer(503, {"Retry-After": "7"})] * 2) == [7, 7]
    assert waits(rules, [refused("key-in-progress", **{"Retry-After": "1"})] * 4) == [1, 1, 2, 4]


def test_nobody_waits_for_an_attempt_that_would_come_too_late():
    seconds = [0.0]
    rules = Retries(seconds=20, clock=lambda: seconds[0], chance=lambda: 1.0)
    attempts = Attempts(rules, repeatable=True, method="POST", url="")
    with attempts.one(()) as left:
        assert left == 20
    seconds[0] = 12
    with attempts.one(()) as left:
        assert left == 8
        assert not attempts.is_final(Answer(503, {"Retry-After": "7"}))
        assert attempts.pause == 7
        assert attempts.is_final(Answer(503, {"Retry-After": "8"}))


@pytest.mark.parametrize(
    "rules",
    [
        {"attempts": 0},
        {"seconds": 0},
        {"first_wait": -1},
        {"first_wait": 5, "longest_wait": 1},
        {"seconds": float("nan")},
    ],
)
def test_rules_out_of_range_are_refused(rules):
    with pytest.raises(ValueError, match=next(iter(rules))):
        Retries(**rules)


def test_a_key_is_new_every_time_and_one_that_the_server_takes():
    keys = {new_key() for _ in range(1000)}
    assert len(keys) == 1000
    assert all(len(key) == 36 and key.isascii() and key.isprintable() for key in keys)


@pytest.mark.parametrize(
    ("quoted", "given", "sent"),
    [
        (False, "order 17", "order 17"),
        (False, '"order 17"', '"order 17"'),
        (True, "order 17", '"order 17"'),
        (True, '"order 17"', '"order 17"'),
        (True, r"a\b", r'"a\\b"'),
        (True, 'a"b', r'"a\"b"'),
    ],
)
def test_a_key_goes_bare_or_between_quotes(quoted, given, sent):
    headers = {"Idempotency-Key": given}
    put_key(headers, "Idempotency-Key", quoted=quoted)
    assert headers["Idempotency-Key"] == sent


@pytest.mark.parametrize(("value", "replayed"), [("true", True), ("TRUE", True), ("false", False)])
def test_a_replay_is_told_from_a_first_answer(value, replayed):
    assert was_replayed(Answer(200, {"Idempotent-Replayed": value})) == replayed
    assert not was_replayed(Answer(200, {}))
