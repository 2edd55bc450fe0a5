"""The store behind PgBouncer in transaction mode, which shares the server's sessions."""

from contextlib import contextmanager

import pytest
from helpers.applications.doctor_apps import production_app, severity
from helpers.payment_database import PaymentApp
from helpers.servers.pgbouncer import PgBouncer
from helpers.servers.processes import all_at_once, until
from helpers.sql_stores import sql_store
from helpers.store_assertions import claim, owner, timed_failure
from sqlalchemy import NullPool, create_engine, text

from flask_idempotence import SqlStore
from flask_idempotence.stores.base import NO_FINGERPRINT, Outcome
from flask_idempotence.testing import StoreContract

pytestmark = pytest.mark.database

SHOWN = ("transaction_isolation", "statement_timeout", "lock_timeout")
SLOWER = 0.4
"""Seconds: longer than the deadline of the store that is used meanwhile."""


@pytest.fixture(scope="module")
def direct(postgres):
    """The database without the pooler, which prefers another isolation than ours."""
    url = postgres.new_database()
    ours = f"ALTER DATABASE {url.rpartition('/')[2]}"
    postgres.execute(f"{ours} SET default_transaction_isolation = 'repeatable read'")
    engine = create_engine(url, poolclass=NullPool)
    SqlStore(engine).create_table()
    return url


@pytest.fixture
def url(pgbouncer, direct):
    return pgbouncer.url(direct)


@pytest.fixture
def store(url):
    with sql_store(url, create=False, deadline=1) as store:
        store.clear("")
        yield store


@pytest.fixture
def seen(url):
    """Connections of the application's own, through the same pooler."""
    engine = create_engine(
        url, pool_size=8, max_overflow=0, connect_args={"prepare_threshold": None}
    )
    yield engine
    engine.dispose()


def settings_of(engine, count=12, *, seconds=0.0):
    """Return what so many sessions at once show of their settings, having slept so long."""

    def look():
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_sleep(:seconds)"), {"seconds": seconds})
            return tuple(connection.scalar(text(f"SHOW {name}")) for name in SHOWN)

    return set(all_at_once([look] * count))


UNTOUCHED = {("repeatable read", "0", "0")}


class TestPooledContract(StoreContract):
    @pytest.fixture
    def store(self, store):
        # 64 threads on three connections of the server's
        slow = SqlStore(store.engine, deadline=10)
        yield slow
        slow.close()


def work(store, times):
    for _ in range(times):
        key, mine = owner().hex(), owner()
        store.claim(key, mine, NO_FINGERPRINT, 60, 0)
        assert store.complete(key, mine, NO_FINGERPRINT, b"record", 60) is Outcome.OK


def test_no_setting_of_ours_reaches_the_applications_connections(store, seen):
    for _ in range(4):
        all_at_once([lambda: work(store, 40)] * 4)
        assert settings_of(seen) == UNTOUCHED
    short = SqlStore(store.engine, deadline=0.9 * SLOWER)
    for _ in range(4):
        work(short, 10)
        assert settings_of(seen, 6, seconds=SLOWER) == UNTOUCHED
    short.close()


def test_the_limits_hold_for_our_own_transactions(store, seen):
    mine = owner()
    store.claim("k", mine, NO_FINGERPRINT, 60, 0)
    with seen.begin() as connection:
        store.complete_in(connection, "k", mine, NO_FINGERPRINT, b"record", 60)
        error, took = timed_failure(lambda: store.release("k", mine))
        assert not error.sent  # the server has given it up, and said so
        assert 0.5 < took < 2.5
        connection.rollback()
    assert store.release("k", mine) is Outcome.OK


def test_nothing_is_prepared_by_name(store, seen):
    another = SqlStore(store.engine)
    all_at_once([lambda: work(store, 30), lambda: work(another, 30)] * 3)
    with seen.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM pg_prepared_statements")) == 0
    another.close()


@pytest.fixture
def statements(postgres):
    """What the server is sent, by its own log: the sessions of the pooler were there before."""

    def log(what):
        reload = "SELECT pg_reload_conf()"
        postgres.execute(f"ALTER SYSTEM SET log_statement = '{what}'", reload)

    log("all")
    yield postgres.statements
    log("none")


def test_an_operation_is_one_transaction_of_three_round_trips(store, statements):
    store.ping()
    assert until(lambda: statements(store.ping))  # the settings have arrived
    [begin, claimed, commit] = statements(lambda: claim(store, owner().hex()))
    assert "BEGIN ISOLATION LEVEL READ COMMITTED" in begin
    assert "SET LOCAL" in begin
    assert "WITH seen" in claimed
    assert commit.endswith("COMMIT")


DRIVERS = {"psycopg": {"prepare_threshold": None}, "psycopg2": {}, "pg8000": {}}


@contextmanager
def paying(pooler, direct, driver, *view):
    options = {"connect_args": DRIVERS[driver], "pool_size": 8}
    pay_app = PaymentApp(pooler.url(direct, driver), *view, engine=options)
    try:
        yield pay_app
    finally:
        pay_app.store.close()
        pay_app.close()


@pytest.mark.parametrize("driver", DRIVERS)
def test_within_a_transaction_of_the_applications(pgbouncer, direct, seen, driver):
    with paying(pgbouncer, direct, driver) as pay_app:
        before = pay_app.count()
        for number in range(30):
            assert pay_app.post(f"{driver}-{number}").status_code == 201
            assert pay_app.post(f"{driver}-{number}").headers["Idempotent-Replayed"] == "true"
        calls = [
            lambda n=n: pay_app.post(f"{driver}-once-{n // 4}").status_code for n in range(16)
        ]
        assert set(all_at_once(calls)) <= {201, 409}
        assert (pay_app.count() - before, pay_app.runs) == (34, 34)
        assert settings_of(seen) == UNTOUCHED


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_isolation_of_within_is_that_of_its_own_transaction(pgbouncer, direct, seen, driver):
    def view(session):
        return session.scalar(text("SHOW transaction_isolation"))

    with paying(pgbouncer, direct, driver, view) as pay_app:

        def post(name):
            return {pay_app.post(f"{driver}-isolation-{name}-{n}").text for n in range(15)}

        calls = [lambda name=name: post(name) for name in range(4)]
        looks = [lambda: set().union(*(settings_of(seen, 1) for _ in range(60)))] * 2
        assert all_at_once(calls + looks) == [{"read committed"}] * 4 + [UNTOUCHED] * 2


def test_within_takes_no_second_connection_for_its_commit(postgres, direct):
    with (
        PgBouncer(postgres, default_pool_size=2) as pooler,
        paying(pooler, direct, "psycopg") as pay_app,
    ):
        calls = [lambda n=n: pay_app.post(f"first-{n}").status_code for n in range(6)]
        assert all_at_once(calls) == [201] * 6


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_connection_without_a_pooler_is_recognised(pgbouncer, direct, driver):
    for url, is_pooled in ((direct, False), (pgbouncer.url(direct), True)):
        with sql_store(url.replace("+psycopg", f"+{driver}"), create=False) as store:
            [facts] = store.facts()
        assert facts.pooled is is_pooled
        assert facts.prepares is (is_pooled and driver == "psycopg")  # as it does by default


@pytest.mark.parametrize(
    ("pooled", "prepares", "told"),
    [(True, {}, "warning"), (True, {"prepare_threshold": None}, "ok"), (False, {}, "ok")],
)
def test_the_doctor_finds_that_statements_are_prepared_behind_a_pooler(
    url, direct, pooled, prepares, told
):
    with sql_store(url if pooled else direct, create=False, connect_args=prepares) as store:
        assert severity("pooler", production_app(store=store)) == told
