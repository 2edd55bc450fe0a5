"""The example's recipes on each database: the effects of a crowd, and the answer to each."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import abort
from helpers.callers.recipe_requests import (
    CROWD,
    PATIENCE,
    RecipeSite,
    spy,
    statuses,
    values_of,
    wait_for_each_other,
)
from helpers.repository import ROOT
from helpers.row_locks import transaction, wait_for_waiting
from helpers.servers.example import FlaskRun, ask
from helpers.servers.processes import all_at_once, until
from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from example_app.recipes import (
    deadlocks,
    deduplication_table,
    optimistic_lock,
    payments,
    pessimistic_lock,
    select_then_insert,
    state_machine,
)
from example_app.recipes.models import Account
from example_app.recipes.pages import recipes
from example_app.recipes.sessions import RecipeDatabase

pytestmark = pytest.mark.database

COPIES = 5
ALL, ONE = {200: CROWD}, {200: 1, 409: CROWD - 1}
FIRST_ONLY = [False] * (CROWD - 1) + [True]
CROWDS = {
    "unique-index": ({"reference": "A"}, {201: 1, 409: CROWD - 1}, {}, {"orders": 1}),
    "unique-index/guarded": (
        {"reference": "A"}, {201: CROWD}, {"number": [1] * CROWD}, {"orders": 1},
    ),
    "get-or-create/guarded": (
        {"reference": "A"}, {201: CROWD}, {"number": [1] * CROWD}, {"orders": 1},
    ),
    "deduplication-table/mug": (
        {"message": "m", "pieces": 5}, ALL, {"first": FIRST_ONLY, "pieces": [5] * CROWD},
        {"stock": 5, "messages": 1},
    ),
    "optimistic-lock/mug/guarded": (
        {"percent": 10, "change": "c"}, ALL, {"cents": [1100] * CROWD}, {},
    ),
    "pessimistic-lock/1": (
        {"amount": 10}, {200: 10, 409: CROWD - 10}, {"balance": list(range(0, 100, 10))}, {},
    ),
    "state-machine/1": ({"status": "shipped"}, ALL, {"changed": FIRST_ONLY}, {"departures": 1}),
    "state-machine/2/guarded": ({"status": "shipped"}, ONE, {}, {"departures": 1}),
    "counter": (
        {"voter": "Ada"}, {200: 3, 409: CROWD - 3}, {"used": [1, 2, 3]}, {"votes": {"Ada": 3}},
    ),
    "counter/guarded": ({"voter": "Ada"}, ONE, {}, {"votes": {"Ada": 1}}),
}  # fmt: skip
"""What each of a crowd sends, what it is told, and what is in the database after it."""


@pytest.mark.parametrize("path", CROWDS)
def test_what_a_crowd_is_told_and_what_it_leaves(site, path):
    form, told, values, left = CROWDS[path]
    answers = site.crowd(path, **form)
    assert statuses(answers) == told
    assert {name: sorted(values_of(answers, name)) for name in values} == values
    assert {name: site.truth(name) for name in left} == left


def test_select_then_insert_lets_all_of_a_crowd_through(site, monkeypatch):
    wait_for_each_other(monkeypatch, select_then_insert, "work")
    answer = site.post("select-then-insert", reference="A", milliseconds=0)
    assert answer.json == {"callers": CROWD, "rows": CROWD, "duplicates": CROWD - 1}
    assert site.truth("plain orders") == CROWD


def test_select_then_insert_is_safe_only_while_requests_come_one_by_one(site, monkeypatch):
    monkeypatch.setattr(select_then_insert, "CROWD", 1)
    for _ in range(3):
        assert site.post("select-then-insert", reference="A", milliseconds=0).json["rows"] == 1


def test_once_lets_one_of_a_crowd_through_the_same_code(site, monkeypatch):
    asked = spy(monkeypatch, select_then_insert, "insert_once")
    monkeypatch.setattr(select_then_insert, "work", lambda _: until(lambda: len(asked) == CROWD))
    answer = site.post("select-then-insert/guarded", reference="A", milliseconds=0)
    assert answer.json == {"callers": CROWD, "rows": 1, "duplicates": 0}


def test_a_key_notices_that_a_reference_is_used_for_something_else(site):
    assert site.post("unique-index/guarded", reference="A").status_code == 201
    assert site.post("unique-index/guarded", reference="A", more="B").status_code == 422


@pytest.mark.parametrize("path", ["unique-index", "get-or-create"])
def test_references_that_differ_in_case_are_two(site, path):
    answers = [site.post(path, reference=reference) for reference in ("order-a", "ORDER-A")]
    assert statuses(answers) == {201: 2}
    assert site.truth("orders") == 2


def test_get_or_create_takes_one_order_of_a_crowd_and_returns_it_to_all(site):
    answers = site.crowd("get-or-create", reference="A")
    assert statuses(answers) == {201: 1, 200: CROWD - 1}
    assert len(set(values_of(answers, "number"))) == 1
    assert site.truth("orders") == 1


def after_the_first_is_rolled_back(site, url, path):
    first = "INSERT INTO recipe_orders (reference) VALUES ('A')"
    with transaction(url, first) as connection, ThreadPoolExecutor() as pool:
        copies = pool.submit(site.crowd, path, COPIES, reference="A")
        wait_for_waiting(url, COPIES)
        connection.rollback()
        return copies.result()


def test_get_or_create_survives_the_rollback_of_the_first_insert(site, url, monkeypatch):
    deadlock = spy(monkeypatch, deadlocks, "was_rolled_back")
    answers = after_the_first_is_rolled_back(site, url, "get-or-create")
    assert statuses(answers) == {201: 1, 200: COPIES - 1}
    assert len(set(values_of(answers, "number"))) == 1
    assert site.truth("orders") == 1
    assert len(deadlock) == (COPIES - 1 if url.startswith("mysql") else 0)


def test_a_unique_index_takes_one_copy_after_the_rollback_of_the_first_insert(site, url):
    answers = after_the_first_is_rolled_back(site, url, "unique-index")
    assert statuses(answers) == {201: 1, 409: COPIES - 1}
    assert site.truth("orders") == 1


def test_the_index_returns_the_row_to_another_sender_of_the_key(site):
    first, other = (
        site.post("get-or-create/guarded", sender, reference="A") for sender in ("Ada", "Grace")
    )
    assert (first.status_code, other.status_code) == (201, 200)
    assert first.json["number"] == other.json["number"]
    assert site.truth("orders") == 1


def test_a_refused_insert_uses_up_a_number_on_servers(site, url):
    for _ in range(2):
        site.post("unique-index", reference="A")
    number = site.post("unique-index", reference="B").json["number"]
    assert number == (2 if url.startswith("sqlite") else 3)


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


def test_of_a_crowd_that_has_read_one_version_one_writes_and_the_others_lose(site, monkeypatch):
    wait_for_each_other(monkeypatch, optimistic_lock, "changed")
    answers = site.crowd("optimistic-lock/mug", percent=10)
    assert statuses(answers) == ONE
    assert site.truth("prices")["mug"] == 1100


def test_the_losers_come_through_when_they_read_and_compute_again(site):
    def raises():
        return site.post("optimistic-lock/mug", percent=10).status_code == 200

    assert all_at_once([lambda: until(raises, PATIENCE)] * 4) == [True] * 4
    assert site.truth("prices")["mug"] == 1464  # 1100, 1210, 1331, 1464: none is lost


@pytest.mark.parametrize(
    ("seen", "told", "left"), [({"version": 1}, [200, 409], 1100), ({}, [200, 200], 1210)]
)
def test_a_late_duplicate_loses_by_the_version_that_the_client_saw(site, seen, told, left):
    answers = [site.post("optimistic-lock/mug", percent=10, **seen) for _ in range(2)]
    assert [answer.status_code for answer in answers] == told
    assert site.truth("prices")["mug"] == left


def test_a_key_lets_two_different_changes_in_and_one_is_lost(site, monkeypatch):
    wait_for_each_other(monkeypatch, optimistic_lock, "changed", 2)
    path = "optimistic-lock/mug/guarded"
    answers = site.at_once(*((path, {"percent": 10, "change": c}) for c in "ab"))
    assert statuses(answers) == {200: 2}
    assert site.truth("prices")["mug"] == 1100  # 1210, had they come one after the other


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


def test_a_parcel_is_shipped_or_cancelled_and_never_both(site):
    wishes = [("state-machine/1", {"status": status}) for status in ("shipped", "cancelled")]
    answers = site.at_once(*wishes * (CROWD // 2))
    assert statuses(answers) == {200: CROWD // 2, 409: CROWD // 2}
    assert sum(values_of(answers, "changed")) == 1
    assert {answer.json["status"] for answer in answers} == {site.truth("parcels")[0]}
    assert site.truth("departures") == 1


def test_a_lock_lets_two_different_wishes_in_and_both_come_true(site, monkeypatch):
    wait_for_each_other(monkeypatch, state_machine, "may_become", 2)
    path = "state-machine/2/guarded"
    answers = site.at_once((path, {"status": "shipped"}), (path, {"status": "cancelled"}))
    assert statuses(answers) == {200: 2}
    assert site.truth("departures") == 2


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
    assert sum("Idempotent-Replayed" in answer.headers for answer in answers) == CROWD - 1
    assert len({answer.get_data() for answer in answers}) == 1
    assert (len(charged), site.truth("payments")) == (1, 1)


def test_the_index_stands_behind_the_guard_for_those_who_come_another_way(make):
    site = make(within=True)
    site.post("payments", reference="A", amount=12)
    answer = site.post("payments/guarded", reference="A", amount=12)
    assert (answer.status_code, site.truth("payments")) == (409, 1)


def test_many_processes_may_prepare_one_database_at_once(url):
    databases = [RecipeDatabase(url) for _ in range(8)]
    all_at_once([database.prepare for database in databases])
    with databases[0].new_session() as session:
        assert len(session.scalars(select(Account)).all()) == 2
    for database in databases:
        database.engine.dispose()


def test_every_form_of_the_page_is_answered_with_success(make):
    site = make(within=True)
    shown = recipes(version=1)
    for form in [form for recipe in shown for form in (recipe.technique, recipe.guard)]:
        answer = site.post(form.path, **form.fields)
        assert answer.status_code in {200, 201}, (form.path, answer.text)
    assert len(shown) == 9


def test_the_commands_of_the_page_start_the_recipes_on_a_database(url, tmp_path):
    environment = {
        **os.environ,
        "IDEMPOTENCE_STORAGE_URI": url,
        "EXAMPLE_DATABASE": str(tmp_path / "shop.sqlite3"),
    }
    command = [sys.executable, "-m", "flask", "--app", "example_app", "idempotence", "init-db"]
    subprocess.run(command, check=True, cwd=ROOT, env=environment, timeout=60)
    form = {"reference": "A", "amount": 12}
    with FlaskRun(env=environment) as server:
        paid = [ask(f"{server.url}/recipes/payments/guarded", form) for _ in range(2)]
        assert [answer.status for answer in paid] == [201, 201]
        assert paid[1].headers["Idempotent-Replayed"]
        assert (
            ask(f"{server.url}/recipes", headers={"Accept": "application/json"}).json["payments"]
            == 1
        )
