"""The store's connections: what is sent on them, and who gets the next one."""

import logging
import threading
import time
from contextlib import contextmanager, nullcontext

import pytest
from helpers.servers.processes import until
from helpers.sql_stores import interrupted_after, sql_store
from helpers.store_assertions import claim, fill, owner, timed_failure
from sqlalchemy import Engine, NullPool, create_engine, event, text

from flask_idempotence import SqlStore
from flask_idempotence.errors import StoreError, StoreNotReady
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Renewal, Running
from flask_idempotence.stores.sql import pool

OTHER = bytes(range(16))
DRIVERS = ["psycopg", "psycopg2", "pg8000"]


@pytest.fixture(params=["sqlite", "pymysql", *DRIVERS])
def engine(request, tmp_path):
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/app.db"
    elif request.param == "pymysql":
        url = request.getfixturevalue("mariadb").new_database()
    else:
        url = request.getfixturevalue("postgres").new_database()
        url = url.replace("+psycopg", f"+{request.param}")
    engine = create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def store(engine):
    with sql_store(engine.url) as store:
        yield store


@contextmanager
def listening(name="before_cursor_execute"):
    """Note the statements of every engine, as tools that trace an application do."""
    seen = []

    def note(connection, cursor, statement, parameters, *more):
        seen.append((statement, parameters))

    event.listen(Engine, name, note)
    try:
        yield seen
    finally:
        event.remove(Engine, name, note)


def every_operation(store, name):
    key, mine, record = f"{name}:%s:%(x)s:?", b"\0%\xff" * 5 + b"\0", b"%s\0\xff" * 100
    outcomes = [
        store.claim(key, mine, NO_FINGERPRINT, 60, 0),
        store.claim(key, mine, NO_FINGERPRINT, 60, 0),
        _rounded(store.claim(key, owner(), NO_FINGERPRINT, 60, 0)),
        _rounded(store.claim(key, owner(), OTHER, 60, 0)),
        store.renew([Renewal(key, mine, 60), Renewal(key, OTHER, 60), Renewal("no", mine, 60)]),
        store.look_up(key, mine),
        store.release(key, OTHER),
        store.complete(key, OTHER, NO_FINGERPRINT, record, 60),
        store.complete(key, mine, NO_FINGERPRINT, record, 60),
        store.claim(key, owner(), NO_FINGERPRINT, 60, 0),
        store.claim(key, owner(), OTHER, 60, 0),
        store.look_up(key, mine),
        store.look_up(key, OTHER),
        store.release(key, mine),
        store.renew([Renewal(key, mine, 60)]),
    ]
    store.claim(f"{name}:short", mine, NO_FINGERPRINT, 0.001, 60)
    store.put_token(f"{name}:token", mine, 60)
    store.put_token(f"{name}:again", b"", 60)
    time.sleep(0.01)
    return [
        *outcomes,
        store.claim(f"{name}:short", OTHER, NO_FINGERPRINT, 60, 0),
        store.claim(f"{name}:token", OTHER, NO_FINGERPRINT, 60, 0),
        store.take_token(f"{name}:token", OTHER),
        store.take_token(f"{name}:token", mine),
        store.take_token(f"{name}:token", mine),
        store.take_token(f"{name}:again", OTHER),
        store.release(f"{name}:none", mine),
        store._run(store._dialect.schema),
    ]


def _rounded(outcome):
    return Running(outcome.matches, round(outcome.remaining))


def test_outcomes_are_the_same_where_statements_are_observed(store):
    direct = every_operation(store, "direct")
    for hook in ("before_cursor_execute", "after_cursor_execute"):
        with listening(hook) as observed:
            assert every_operation(store, hook) == direct
        assert observed


def test_statements_are_logged_as_those_of_any_engine(store, caplog):
    with caplog.at_level(logging.INFO, "sqlalchemy.engine.Engine"):
        other = SqlStore(store.engine, deadline=5)
        claim(other, "a key of a user's")
        assert len(list(other.scan(""))) == 1
        other.close()
    assert "FROM flask_idempotence" in caplog.text
    assert "a key of" not in caplog.text


def test_a_completion_is_the_same_on_a_connection_of_the_applications(store, engine):
    mine = owner()
    for key in "ab":
        store.claim(key, mine, NO_FINGERPRINT, 60, 0)
    owners = (OTHER, mine, mine, OTHER)
    with engine.begin() as connection:
        theirs = [
            store.complete_in(connection, "a", by, NO_FINGERPRINT, b"record", 60) for by in owners
        ]
    assert theirs == [store.complete("b", by, NO_FINGERPRINT, b"record", 60) for by in owners]


@pytest.mark.parametrize("is_observed", [False, True])
def test_errors_are_the_same(engine, is_observed):
    with (
        listening() if is_observed else nullcontext(),
        sql_store(engine.url, create=False) as store,
    ):
        with pytest.raises(StoreNotReady) as caught:
            claim(store)
        assert not caught.value.sent
        store.create_table()
        if engine.dialect.driver == "psycopg":
            error, _ = timed_failure(lambda: claim(store, "nul\0"))
            assert not error.sent
        assert claim(store) == Claimed()


@pytest.fixture
def on_postgres(postgres):
    with sql_store(postgres.new_database()) as store:
        yield store


def test_the_pool_of_the_application_hears_why_a_connection_is_closed(on_postgres, postgres):
    heard = []
    event.listen(on_postgres.engine.pool, "invalidate", lambda *given: heard.append(given[2]))
    store = SqlStore(on_postgres.engine, deadline=5)

    suicide = "SELECT pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(StoreError):
        store._run(
            lambda connection: connection.sqlalchemy.exec_driver_sql(suicide), repeatable=False
        )
    store.close()
    assert [type(error).__module__.partition(".")[0] for error in heard] == ["psycopg"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_settings_of_a_listener_that_does_not_commit_hold(postgres, driver):
    url = postgres.new_database().replace("+psycopg", f"+{driver}")
    plain, tenant = create_engine(url), create_engine(url)
    with plain.begin() as connection:
        connection.execute(text("CREATE SCHEMA tenant"))

    @event.listens_for(tenant, "connect")
    def lead_to_tenant(made, _):
        made.cursor().execute("SET search_path TO tenant")

    with tenant.begin() as connection:
        connection.execute(text(";".join(SqlStore(plain).ddl().split(";")[:2])))
    store = SqlStore(tenant, deadline=5)
    assert claim(store) == Claimed()
    with plain.connect() as connection:
        rows = connection.execute(text("SELECT count(*) FROM tenant.flask_idempotence"))
        assert rows.scalar() == 1
    store.close()
    tenant.dispose()
    plain.dispose()


def backend(connection):
    return connection.sqlalchemy.scalar(text("SELECT pg_backend_pid()"))


def test_a_connection_that_was_interrupted_is_not_used_again(on_postgres):
    store, mine = on_postgres, owner()
    store.claim("k", mine, NO_FINGERPRINT, 60, 0)
    before = store._run(backend)

    with store.engine.begin() as connection:
        connection.execute(text("SELECT 1 FROM flask_idempotence FOR UPDATE"))
        with interrupted_after(0.3):
            store.release("k", mine)
    assert store._run(backend) != before


def test_a_connection_that_the_server_has_closed_is_not_taken_from_the_pool(on_postgres, postgres):
    store = on_postgres
    fill(store)
    killer = create_engine(store.engine.url, poolclass=NullPool)
    with killer.begin() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        )
    assert until(lambda: not postgres.connections(store.engine.url.database))
    store.put_token("t", b"", 60)  # sent once, and not on one that the server has closed


@pytest.fixture
def on_sqlite(tmp_path):
    url = f"sqlite:///{tmp_path}/app.db"
    with sql_store(url, deadline=2, pool_reset_on_return=None) as store:
        yield store


def test_a_short_wait_on_sqlite_does_not_outlast_its_operation(on_sqlite):
    store = on_sqlite
    claim(store)
    with store.engine.connect() as connection:
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        store._deadline = 0.05
        _, took = timed_failure(lambda: claim(store))
        assert took < 1
        store._deadline = 5
        found = []
        thread = threading.Thread(target=lambda: found.append(claim(store)))
        thread.start()
        time.sleep(0.3)
        connection.exec_driver_sql("ROLLBACK")
        thread.join()
    assert isinstance(found[0], Running)


@pytest.mark.timed
def test_a_writer_on_sqlite_that_has_waited_for_another_thread_keeps_its_deadline(on_sqlite):
    store = on_sqlite
    with store.engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        lock = store._dialect._lock
        lock.acquire()
        threading.Timer(1.6, lock.release).start()
        _, took = timed_failure(lambda: claim(store))
        assert took < 3
        connection.exec_driver_sql("ROLLBACK")


def test_a_transaction_that_fails_is_rolled_back_without_the_help_of_the_pool(on_sqlite):
    store = on_sqlite

    def work(connection):
        with connection.transaction("BEGIN IMMEDIATE"):
            raise ZeroDivisionError

    with pytest.raises(StoreError, match="ZeroDivisionError"):
        store._run(work)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM flask_idempotence")
    assert claim(store) == Claimed()


@pytest.mark.parametrize(("waited", "is_handed_over"), [(0, False), (7200, True)])
def test_a_connection_is_handed_over_only_to_a_caller_that_has_waited(
    on_sqlite, waited, is_handed_over, monkeypatch
):
    """A handover for each operation would cost a change of threads, and never one is unfair."""
    monkeypatch.setattr(pool, "_FAIR_AFTER", 3600)
    lender, ask = on_sqlite._pool, pool.Ask()
    with lender.connection(time.monotonic() + 2) as lent:
        ask.since -= waited
        lender._waiting.append(ask)
    assert ask.look.is_set()
    assert (ask.served is lent) is is_handed_over
    assert (lender._take_idle() is lent) is not is_handed_over
