"""Pruning: how often, how much at once, and what a failure costs."""

import logging

import pytest
from sqlalchemy import create_engine

from flask_idempotence import SqlStore, StoreError
from flask_idempotence.stores.sql import store as pruning
from flask_idempotence.stores.sql.store import BATCH, EVERY, REST


@pytest.fixture
def rests(monkeypatch):
    """The pauses between batches, which take no time."""
    taken = []
    monkeypatch.setattr(pruning.time, "sleep", taken.append)
    return taken


@pytest.fixture
def threads(monkeypatch):
    """The rounds that were begun and have not run yet."""
    begun = []
    monkeypatch.setattr(pruning, "start_daemon", lambda run, name: begun.append(run) is None)
    return begun


class Table(SqlStore):
    """Expired rows, and the batches in which they were removed; it takes any number of tokens."""

    def __init__(self, rows):
        super().__init__(create_engine("sqlite:///nowhere.db"))
        self.rows = rows
        self.batches = []

    def _run(self, *_, **__):
        pass

    def prune(self, most):
        removed = min(most, self.rows)
        self.rows -= removed
        self.batches.append(removed)
        return removed


def write(rounds, keys):
    for _ in range(keys):
        rounds.put_token("t", b"", 60)


def test_a_round_begins_with_every_so_many_keys_and_one_at_a_time(rests, threads):
    rounds = Table(0)
    write(rounds, EVERY - 1)
    assert len(threads) == 0
    write(rounds, 1)
    assert len(threads) == 1
    write(rounds, 3 * EVERY)
    assert len(threads) == 1  # that one is still running
    threads.pop()()
    write(rounds, 1)
    assert len(threads) == 1
    threads.pop()()
    write(rounds, EVERY - 1)
    assert len(threads) == 0


@pytest.mark.parametrize(
    ("expired", "batches"),
    [
        (0, [0]),
        (BATCH - 1, [BATCH - 1]),
        (BATCH, [BATCH, 0]),
        (2 * BATCH + 5, [BATCH, BATCH, 5]),
        (50 * BATCH, [BATCH] * 20),
    ],
)
def test_a_round_ends_with_a_batch_that_is_not_full(rests, threads, expired, batches):
    table = Table(expired)
    write(table, EVERY)
    threads.pop()()
    assert table.batches == batches
    assert rests == [REST] * sum(batch == BATCH for batch in batches)


def test_a_store_that_fails_ends_the_round_and_not_the_next_one(rests, threads, caplog):
    def fail(most):
        raise StoreError("locked")

    rounds = Table(0)
    rounds.prune = fail
    write(rounds, EVERY)
    with caplog.at_level(logging.INFO, "flask_idempotence"):
        threads.pop()()
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "Expired rows could not be removed: locked")
    ]
    write(rounds, EVERY)
    assert len(threads) == 1


def test_a_process_without_room_for_a_thread_tries_again_later(monkeypatch):
    asked = []
    monkeypatch.setattr(pruning, "start_daemon", lambda run, name: bool(asked.append(name)))
    rounds = Table(0)
    write(rounds, 2 * EVERY)
    assert asked == ["flask-idempotence-pruning"] * 2
