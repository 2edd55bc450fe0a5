"""What a database says of itself: every fact of each, as one value; and the library's version."""

import sqlite3
from dataclasses import replace

import pytest
from sqlalchemy import create_engine

from flask_idempotence import ConfigurationError, SqlStore
from flask_idempotence.stores.facts import DatabaseFacts
from flask_idempotence.stores.sql import sqlite


@pytest.fixture
def facts_of():
    opened = []

    def facts_of(url, *, bare=False):
        engine = create_engine(url)
        store = SqlStore(engine, deadline=5)
        opened[:0] = [store.close, engine.dispose]
        if not bare:
            store.create_table()
        [facts] = store.facts()
        return facts

    yield facts_of
    for close in opened:
        close()


def on_the_same_machine(facts):
    """Return facts without the difference of the clocks, which is next to nothing."""
    assert abs(facts.clock_ahead) < 1
    return replace(facts, clock_ahead=None)


@pytest.mark.parametrize(
    ("journal", "synchronous", "survives"),
    [
        ("wal", "FULL", True),
        ("wal", "NORMAL", False),
        ("delete", "EXTRA", True),
        ("delete", "NORMAL", True),
        ("delete", "OFF", False),
        ("memory", "FULL", False),
    ],
)
def test_of_sqlite(facts_of, tmp_path, monkeypatch, journal, synchronous, survives):
    prepare = sqlite.SQLite.prepare

    def prepare_as_here(dialect, connection, *more):
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        prepare(dialect, connection, *more)

    monkeypatch.setattr(sqlite.SQLite, "prepare", prepare_as_here)
    assert facts_of(f"sqlite:///{tmp_path}/app.db") == DatabaseFacts(
        product="SQLite",
        version=sqlite3.sqlite_version_info,
        oldest=(3, 35),
        survives_crash=survives,
        durability=f"journal_mode is {journal}, synchronous is {synchronous}",
    )


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "pg8000"])
def test_of_postgresql(facts_of, postgres, driver):
    with postgres.connect() as connection:
        number = int(connection.execute("SHOW server_version_num").fetchone()[0])
    url = postgres.new_database().replace("+psycopg", f"+{driver}")
    assert on_the_same_machine(facts_of(url)) == DatabaseFacts(
        product="PostgreSQL",
        version=(number // 10000, number % 10000),
        oldest=(12,),
        survives_crash=False,
        durability="fsync is off, synchronous_commit is on",
        pooled=False,
        prepares=False,
    )


@pytest.mark.parametrize(("flush", "survives"), [(1, True), (2, False)])
def test_of_mariadb(facts_of, mariadb, flush, survives):
    mariadb.execute(f"SET GLOBAL innodb_flush_log_at_trx_commit = {flush}")
    [[version]] = mariadb.execute("SELECT VERSION()")
    assert on_the_same_machine(facts_of(mariadb.new_database())) == DatabaseFacts(
        product="MariaDB",
        version=tuple(map(int, version.split("-")[0].split("."))),
        oldest=(10, 6),
        survives_crash=survives,
        durability=f"innodb_flush_log_at_trx_commit is {flush}, sync_binlog is 0",
    )


@pytest.mark.parametrize("database", ["sqlite", "postgres", "mariadb"])
def test_without_a_table(facts_of, database, request, tmp_path):
    url = f"sqlite:///{tmp_path}/app.db"
    if database != "sqlite":
        url = request.getfixturevalue(database).new_database()
    facts = facts_of(url, bare=True)
    assert facts.missing == ("flask_idempotence",)


def test_a_library_of_sqlite_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.34.1")
    with pytest.raises(ConfigurationError, match=r"SQLite 3.34.1 is too old .* needs 3.35 or"):
        SqlStore(create_engine("sqlite:////tmp/app.db"))
