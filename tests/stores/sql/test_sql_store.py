"""The store in a table: the contract on SQLite and PostgreSQL, and what is special about it."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.store_assertions import owner
from sqlalchemy import create_engine

from flask_idempotence import SqlStore
from flask_idempotence.stores.base import NO_FINGERPRINT, Outcome, Renewal
from flask_idempotence.stores.sql import table
from flask_idempotence.testing import StoreContract


@pytest.fixture(scope="module")
def sqlite_url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('sqlite')}/app.db"


@pytest.fixture(scope="module")
def postgres_url(postgres):
    return postgres.new_database()


def store_at(url, **options):
    engine = create_engine(url)
    store = SqlStore(engine, **options)
    store.create_table()
    with engine.begin() as connection:
        connection.execute(table.delete())
    engine.dispose()
    return store


@pytest.fixture(scope="module")
def mariadb_url(mariadb):
    return mariadb.new_database()


class TestSqlStoreOnSqlite(StoreContract):
    @pytest.fixture
    def store(self, sqlite_url):
        return store_at(sqlite_url, deadline=10)  # 32 writers come one after the other


class TestSqlStoreOnPostgres(StoreContract):
    @pytest.fixture
    def store(self, postgres_url):
        return store_at(postgres_url, deadline=5)  # 32 connections are made at once


class TestSqlStoreOnMariaDb(StoreContract):
    @pytest.fixture
    def store(self, mariadb_url):
        return store_at(mariadb_url, deadline=5)


@pytest.mark.parametrize("database", ["sqlite", "postgres", "mariadb"])
def test_one_batch_renews_the_claims_whose_key_and_owner_both_match(request, database):
    store = store_at(request.getfixturevalue(f"{database}_url"), deadline=5)
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
    store.close()


def test_a_connection_that_comes_back_after_the_end_is_closed(postgres_url):
    store = store_at(postgres_url)
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
