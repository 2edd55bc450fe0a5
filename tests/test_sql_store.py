"""The store in a table: the contract on SQLite and PostgreSQL, and what is special about it."""

import pytest
from sqlalchemy import create_engine

from flask_idempotence import SqlStore
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


class TestSqlStoreOnSqlite(StoreContract):
    @pytest.fixture
    def store(self, sqlite_url):
        return store_at(sqlite_url, deadline=10)  # 32 writers come one after the other


class TestSqlStoreOnPostgres(StoreContract):
    @pytest.fixture
    def store(self, postgres_url):
        return store_at(postgres_url)
