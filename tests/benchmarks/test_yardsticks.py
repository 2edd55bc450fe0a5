"""The yardsticks of the benchmarks: what is written by hand works."""

import os
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from flask_idempotence import SqlStore

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from modes.bare_stores import bare_store

OWNER, STRANGER = b"o" * 16, b"s" * 16
ASKED, OTHER = b"a" * 16, b"b" * 16


@pytest.fixture(params=["memory", "redis", "sqlite", "postgresql"])
def store(request, tmp_path):
    """A store as somebody would use it by hand."""
    if request.param in ("memory", "redis"):
        redis = request.param == "redis"
        yield bare_store(request.getfixturevalue("redis_url") if redis else "memory://")
        return
    uri = f"sqlite:///{tmp_path}/bare.db"
    if request.param == "postgresql":
        uri = request.getfixturevalue("postgres").new_database()
    ours = SqlStore(create_engine(uri))
    ours.create_table()
    store = bare_store(uri)
    yield store
    ours.close()
    for engine in (ours.engine, store._engine):
        engine.dispose()


def test_a_key_is_claimed_once_and_then_remembers_its_answer(store):
    assert store.claim("key", OWNER, ASKED, 30) == 0
    running = store.claim("key", STRANGER, ASKED, 30)
    assert running[0] == 1
    assert running[1]
    store.complete("key", OWNER, ASKED, b"answer", 60)
    for find in (store.claim, store.look):
        state, matches, record, *_ = find("key", STRANGER, ASKED, 30)
        assert (state, bool(matches), record) == (2, True, b"answer")
    assert not store.claim("key", STRANGER, OTHER, 30)[1]


def test_a_key_that_its_owner_gives_up_is_free(store):
    store.claim("key", OWNER, ASKED, 30)
    store.release("key", STRANGER)
    assert store.claim("key", STRANGER, ASKED, 30) != 0
    store.release("key", OWNER)
    assert store.claim("key", STRANGER, ASKED, 30) == 0


def test_a_token_is_taken_once(store):
    tokens = [os.urandom(16).hex() for _ in range(3)]
    store.put_tokens(tokens, 60)
    assert [store.take_token(token) for token in tokens] == [True, True, True]
    assert [store.take_token(token) for token in tokens] == [False, False, False]
