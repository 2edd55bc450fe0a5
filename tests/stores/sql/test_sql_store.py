"""The store in a table: the contract on SQLite and PostgreSQL, and what is special about it."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.sql_stores import sql_store
from helpers.store_assertions import owner
from sqlalchemy import create_engine

from flask_idempotence import SqlStore
from flask_idempotence.stores.base import NO_FINGERPRINT, Outcome, Renewal
from flask_idempotence.stores.sql import table
from flask_idempotence.testing import StoreContract


@pytest.fixture(scope="module", params=["sqlite", "postgres", "mariadb"])
def url(request, tmp_path_factory):
    """A database that stays; the table in it is emptied for each test."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('sqlite')}/app.db"
    return request.getfixturevalue(request.param).new_database()


@pytest.fixture
def store(url):
    with sql_store(url, deadline=10) as store:  # 32 writers come one after the other
        with store.engine.begin() as connection:
            connection.execute(table.delete())
        yield store


class TestSqlStore(StoreContract):
    pass


def test_one_batch_renews_the_claims_whose_key_and_owner_both_match(store):
    owners = {key: owner() for key in "abcd"}
    for key, each in owners.items():
        store.claim(key, each, NO_FINGERPRINT, 50, 100)
    store.complete("d", owners["d"], NO_FINGERPRINT, b"", 60)
    wanted = [("a", "b"), ("b", "a"), ("b", "b"), ("c", "a"), ("d", "d"), ("d", "c"), ("e", "a")]
    renewals = [Renewal(key, owners[by], 500) for key, by in wanted]
    renewed = [("b", "b")]
    assert store.renew(renewals) == [
        Outcome.OK if each in renewed else Outcome.STALE for each in wanted
    ]
    left = {key: (store.peek(key).lease, store.peek(key).expires_in) for key in "abc"}
    assert left == {
        key: (pytest.approx(lease, abs=40), pytest.approx(lease + 100, abs=40))
        for key, lease in (("a", 50), ("b", 500), ("c", 50))
    }


def test_a_look_up_finds_the_claims_and_records_of_an_owner(store):
    mine = owner()
    store.claim("claim", mine, NO_FINGERPRINT, 50, 0)
    store.complete("record", mine, NO_FINGERPRINT, b"", 60)
    store.put_token("token", mine, 60)
    found = [store.look_up(key, mine) for key in ("claim", "record", "token", "absent")]
    assert found == ["claim", "record", None, None]


def test_a_connection_that_comes_back_after_the_end_is_closed(postgres):
    store = SqlStore(create_engine(postgres.new_database()))
    begun, go_on, used = threading.Event(), threading.Event(), []

    def work(connection):
        used.append(connection.driver)
        begun.set()
        assert go_on.wait(10)

    with ThreadPoolExecutor(1) as thread:
        working = thread.submit(store._run, work)
        assert begun.wait(10)
        store.close()
        go_on.set()
        working.result(10)
    del store, working
    gc.collect()
    assert used[0].closed
