"""The recipes: the effects of sixteen requests at once, and the answer to each."""

import pytest
from flask import abort
from helpers.callers.recipe_requests import (
    CROWD,
    RecipeSite,
    spy,
    statuses,
    values_of,
    wait_for_each_other,
)
from helpers.row_locks import wait_for_waiting
from helpers.servers.processes import all_at_once
from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from example_app.recipes import (
    deduplication_table,
    optimistic_lock,
    payments,
    pessimistic_lock,
    state_machine,
)
from example_app.recipes.models import Account
from example_app.recipes.sessions import RecipeDatabase

pytestmark = pytest.mark.database

ALL = {200: CROWD}
ONE = {200: 1, 409: CROWD - 1}


def replays(answers):
    return sum("Idempotent-Replayed" in answer.headers for answer in answers)


# Deduplication table


def test_of_a_crowd_of_copies_of_a_message_one_is_handled(site):
    answers = site.crowd("deduplication-table/mug", message="m", pieces=5)
    assert statuses(answers) == ALL
    assert sorted(values_of(answers, "first")) == [False] * (CROWD - 1) + [True]
    assert set(values_of(answers, "pieces")) == {5}
    assert (site.truth("stock"), site.truth("messages")) == (5, 1)


def test_a_copy_that_waited_does_the_work_where_the_first_was_rolled_back(site, url, monkeypatch):
    failures = iter([503])

    def fail_first():
        for status in failures:
            wait_for_waiting(url, 4)
            abort(status)

    spy(monkeypatch, deduplication_table, "put_in_stock", fail_first)
    answers = site.crowd("deduplication-table/mug", 5, message="m", pieces=5)
    assert statuses(answers) == {200: 4, 503: 1}
    assert sorted(values_of(answers, "first")) == [False, False, False, True]
    assert (site.truth("stock"), site.truth("messages")) == (5, 1)


def test_what_has_been_handled_is_told_what_is_there_now_and_not_what_was_then(site):
    site.post("deduplication-table/mug", message="m", pieces=5)
    site.post("deduplication-table/mug", message="other", pieces=1)
    assert site.post("deduplication-table/mug", message="m", pieces=5).json["pieces"] == 6


def test_once_handles_one_of_a_crowd_and_tells_the_others_to_come_back(make, monkeypatch):
    site = make(within=True)
    site.first_stays(monkeypatch, deduplication_table, "put_in_stock")
    answers = site.crowd("deduplication-table/mug/guarded", message="m", pieces=5)
    assert statuses(answers) == ONE
    assert all(a.headers["Retry-After"] for a in answers if a.status_code == 409)
    site.post("deduplication-table/mug", message="other", pieces=1)
    again = site.post("deduplication-table/mug/guarded", message="m", pieces=5)
    assert again.json == {"first": False, "pieces": 5}
    assert site.truth("stock") == 6


# Optimistic lock


def test_of_a_crowd_that_has_read_one_version_one_writes_and_the_others_lose(site, monkeypatch):
    wait_for_each_other(monkeypatch, optimistic_lock, "changed")
    answers = site.crowd("optimistic-lock/mug", percent=10)
    assert statuses(answers) == ONE
    assert site.truth("prices")["mug"] == 1100


def test_the_losers_come_through_when_they_read_and_compute_again(site):
    def until_done():
        tries = 1
        while site.post("optimistic-lock/mug", percent=10).status_code == 409:
            tries += 1
        return tries

    tries = all_at_once([until_done] * 4)
    assert min(tries) >= 1
    assert site.truth("prices")["mug"] == 1464  # 1100, 1210, 1331, 1464: none is lost


def test_the_version_that_the_client_saw_makes_a_late_duplicate_lose(site):
    answers = [site.post("optimistic-lock/mug", percent=10, version=1) for _ in range(2)]
    assert statuses(answers) == {200: 1, 409: 1}
    assert site.truth("prices")["mug"] == 1100


def test_without_that_version_a_late_duplicate_is_computed_again(site):
    answers = [site.post("optimistic-lock/mug", percent=10) for _ in range(2)]
    assert statuses(answers) == {200: 2}
    assert site.truth("prices")["mug"] == 1210


def test_a_key_lets_one_change_of_a_crowd_compute_and_tells_all_what_it_came_to(site):
    answers = site.crowd("optimistic-lock/mug/guarded", percent=10, change="c")
    assert statuses(answers) == ALL
    assert set(values_of(answers, "cents")) == {1100}
    assert site.truth("prices")["mug"] == 1100


def test_a_key_lets_two_different_changes_in_and_one_is_lost(site, monkeypatch):
    wait_for_each_other(monkeypatch, optimistic_lock, "changed", 2)
    path = "optimistic-lock/mug/guarded"
    answers = site.at_once(*((path, {"percent": 10, "change": c}) for c in "ab"))
    assert statuses(answers) == {200: 2}
    assert site.truth("prices")["mug"] == 1100  # 1210, had they come one after the other


# Pessimistic lock


def test_a_crowd_takes_turns_and_none_takes_what_is_not_there(site):
    answers = site.crowd("pessimistic-lock/1", amount=10)
    assert statuses(answers) == {200: 10, 409: CROWD - 10}
    assert sorted(values_of(answers, "balance")) == list(range(0, 100, 10))
    assert site.truth("balances")[0] == 0


def test_a_pessimistic_lock_lets_a_duplicate_take_the_money_again(site):
    assert statuses([site.post("pessimistic-lock/1", amount=10) for _ in range(2)]) == {200: 2}
    assert site.truth("balances")[0] == 80


def test_for_update_is_left_out_on_sqlite():
    statement = select(Account).with_for_update()
    assert "FOR UPDATE" in str(statement.compile(dialect=postgresql.dialect()))
    assert "FOR UPDATE" not in str(statement.compile(dialect=sqlite.dialect()))


def test_on_sqlite_without_begin_immediate_two_read_the_same_balance(tmp_path, monkeypatch):
    monkeypatch.setattr(pessimistic_lock, "lock_all_of_sqlite", lambda: None)
    wait_for_each_other(monkeypatch, pessimistic_lock, "rest", 2)
    site = RecipeSite(f"sqlite:///{tmp_path}/recipes.sqlite3", tmp_path)
    assert statuses(site.crowd("pessimistic-lock/1", 2, amount=10)) == {200: 2}
    assert site.truth("balances")[0] == 90
    site.close()


def test_a_lock_lets_one_withdrawal_of_a_crowd_in_and_nobody_waits(site, monkeypatch):
    site.first_stays(monkeypatch, pessimistic_lock, "rest")
    assert statuses(site.crowd("pessimistic-lock/2/guarded", amount=10)) == ONE
    assert site.truth("balances")[1] == 90


def test_a_lock_lets_another_sender_in_and_one_withdrawal_is_lost(site, monkeypatch):
    wait_for_each_other(monkeypatch, pessimistic_lock, "rest", 2)
    path = "pessimistic-lock/2/guarded"
    answers = site.at_once(*((path, {"amount": 10, "sender": s}) for s in ("Ada", "Grace")))
    assert statuses(answers) == {200: 2}
    assert site.truth("balances")[1] == 90


# State machine


def test_a_crowd_ships_a_parcel_once_and_all_are_told_that_it_is_shipped(site):
    answers = site.crowd("state-machine/1", status="shipped")
    assert statuses(answers) == ALL
    assert sorted(values_of(answers, "changed")) == [False] * (CROWD - 1) + [True]
    assert site.truth("departures") == 1


def test_a_parcel_is_shipped_or_cancelled_and_never_both(site):
    wishes = [("state-machine/1", {"status": status}) for status in ("shipped", "cancelled")]
    answers = site.at_once(*wishes * (CROWD // 2))
    assert statuses(answers) == {200: CROWD // 2, 409: CROWD // 2}
    assert sum(values_of(answers, "changed")) == 1
    assert {answer.json["status"] for answer in answers} == {site.truth("parcels")[0]}
    assert site.truth("departures") == 1


def test_a_lock_lets_one_wish_of_a_crowd_in(site):
    assert statuses(site.crowd("state-machine/2/guarded", status="shipped")) == ONE
    assert site.truth("departures") == 1


def test_a_lock_lets_two_different_wishes_in_and_both_come_true(site, monkeypatch):
    wait_for_each_other(monkeypatch, state_machine, "may_become", 2)
    path = "state-machine/2/guarded"
    answers = site.at_once((path, {"status": "shipped"}), (path, {"status": "cancelled"}))
    assert statuses(answers) == {200: 2}
    assert site.truth("departures") == 2


# Counter


def test_a_counter_takes_three_of_a_crowd_for_it_knows_no_duplicates(site):
    answers = site.crowd("counter", voter="Ada")
    assert statuses(answers) == {200: 3, 409: CROWD - 3}
    assert sorted(values_of(answers, "used")) == [1, 2, 3]
    assert site.truth("votes") == {"Ada": 3}


def test_a_lock_counts_one_click_of_a_crowd_of_copies(site):
    assert statuses(site.crowd("counter/guarded", voter="Ada")) == ONE
    assert site.truth("votes") == {"Ada": 1}


# Payments


def test_lock_and_index_pay_once_and_turn_the_crowd_away_while_the_bank_is_asked(
    site, monkeypatch
):
    charged = site.first_stays(monkeypatch, payments, "charge")
    answers = site.crowd("payments", reference="A", amount=12)
    assert statuses(answers) == {201: 1, 409: CROWD - 1}
    assert site.post("payments", reference="A", amount=12).json == {"number": 1, "amount": 12}
    assert (len(charged), site.truth("payments")) == (1, 1)


def test_where_the_lock_fails_the_index_lets_one_pay_and_all_are_told_its_number(
    make, monkeypatch
):
    site = make(IDEMPOTENCE_LOCK_ENABLED=False)
    charged = spy(monkeypatch, payments, "charge")
    answers = site.crowd("payments", reference="A", amount=12)
    assert statuses(answers) == {201: CROWD}
    assert set(values_of(answers, "number")) == {1}
    assert (len(charged), site.truth("payments")) == (1, 1)


def test_where_the_lock_fails_and_the_bank_refuses_the_first_another_copy_pays(
    make, url, monkeypatch
):
    site = make(IDEMPOTENCE_LOCK_ENABLED=False)
    failures = iter([502])

    def refuse_first():
        for status in failures:
            wait_for_waiting(url, 4)
            abort(status)

    charged = spy(monkeypatch, payments, "charge", refuse_first)
    answers = site.crowd("payments", 5, reference="A", amount=12)
    assert statuses(answers) == {502: 1, 201: 4}
    assert len(set(values_of(answers, "number"))) == 1
    assert (len(charged), site.truth("payments")) == (2, 1)


def test_a_payment_that_the_bank_refuses_leaves_nothing_and_may_be_tried_again(site, monkeypatch):
    failures = iter([502])
    charged = spy(monkeypatch, payments, "charge", lambda: [abort(status) for status in failures])
    assert site.post("payments", reference="A", amount=12).status_code == 502
    assert site.truth("payments") == 0
    assert site.post("payments", reference="A", amount=12).status_code == 201
    assert (len(charged), site.truth("payments")) == (2, 1)


def test_another_amount_under_the_reference_of_a_payment_is_refused(site):
    site.post("payments", reference="A", amount=12)
    assert site.post("payments", reference="A", amount=13).status_code == 422
    assert site.truth("payments") == 1


def test_within_the_transaction_one_of_a_crowd_pays_and_all_get_its_answer(make, monkeypatch):
    site = make(within=True)
    charged = spy(monkeypatch, payments, "charge")
    answers = site.crowd("payments/guarded", reference="A", amount=12)
    assert statuses(answers) == {201: CROWD}
    assert replays(answers) == CROWD - 1
    assert len({answer.get_data() for answer in answers}) == 1
    assert (len(charged), site.truth("payments")) == (1, 1)


def test_the_index_stands_behind_the_guard_for_those_who_come_another_way(make):
    site = make(within=True)
    site.post("payments", reference="A", amount=12)
    answer = site.post("payments/guarded", reference="A", amount=12)
    assert (answer.status_code, site.truth("payments")) == (409, 1)


# The database


def test_many_processes_may_prepare_one_database_at_once(url):
    databases = [RecipeDatabase(url) for _ in range(8)]
    all_at_once([database.prepare for database in databases])
    with databases[0].new_session() as session:
        assert len(session.scalars(select(Account)).all()) == 2
    for database in databases:
        database.engine.dispose()
