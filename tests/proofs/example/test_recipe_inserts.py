"""The recipes that insert: how many rows a crowd makes, and the answer to each request."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.callers.recipe_requests import (
    CROWD,
    spy,
    statuses,
    values_of,
    wait_for_each_other,
)
from helpers.row_locks import transaction, wait_for_waiting
from helpers.servers.processes import until

from example_app.recipes import deadlocks, select_then_insert

pytestmark = pytest.mark.database

COPIES = 5


# Select, then insert


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


# Unique index


def test_a_unique_index_takes_one_order_of_a_crowd_and_refuses_the_others(site):
    answers = site.crowd("unique-index", reference="A")
    assert statuses(answers) == {201: 1, 409: CROWD - 1}
    assert site.truth("orders") == 1


def test_a_unique_index_does_not_tell_a_repeat_the_first_answer(site):
    first, again = (site.post("unique-index", reference="A") for _ in range(2))
    assert first.json == {"number": 1}
    assert "number" not in again.json


def test_a_key_takes_one_order_of_a_crowd_and_tells_all_its_number(site):
    answers = site.crowd("unique-index/guarded", reference="A")
    assert statuses(answers) == {201: CROWD}
    assert set(values_of(answers, "number")) == {1}
    assert sum("Idempotent-Replayed" in answer.headers for answer in answers) == CROWD - 1
    assert site.truth("orders") == 1


def test_a_key_notices_that_a_reference_is_used_for_something_else(site):
    assert site.post("unique-index/guarded", reference="A").status_code == 201
    assert site.post("unique-index/guarded", reference="A", more="B").status_code == 422


@pytest.mark.parametrize("path", ["unique-index", "get-or-create"])
def test_references_that_differ_in_case_are_two(site, path):
    answers = [site.post(path, reference=reference) for reference in ("order-a", "ORDER-A")]
    assert statuses(answers) == {201: 2}
    assert site.truth("orders") == 2


# A unique index that returns the row


def test_get_or_create_takes_one_order_of_a_crowd_and_returns_it_to_all(site):
    answers = site.crowd("get-or-create", reference="A")
    assert statuses(answers) == {201: 1, 200: CROWD - 1}
    assert len(set(values_of(answers, "number"))) == 1
    assert site.truth("orders") == 1


def after_the_first_is_rolled_back(site, url, path):
    """Send copies that wait for an insert, roll that back, and return the answers."""
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


def test_a_key_before_get_or_create_gives_all_of_a_crowd_the_first_answer(site):
    answers = site.crowd("get-or-create/guarded", reference="A")
    assert statuses(answers) == {201: CROWD}
    assert len({answer.get_data() for answer in answers}) == 1
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
