"""A database that is away, slow, busy or not set up: a clear error, and nothing half done."""

import os
import signal
import time

import pytest
from helpers.apps import make_app
from helpers.servers.faults import Proxy
from helpers.servers.processes import all_at_once, until
from helpers.store_assertions import (
    answers,
    claim,
    owner,
    timed_failure,
    works,
)
from sqlalchemy import NullPool, create_engine, text

from flask_idempotence import SqlStore, idempotent
from flask_idempotence.errors import StoreNotReady
from flask_idempotence.stores.base import (
    NO_FINGERPRINT,
    Claimed,
    Outcome,
    Running,
    TokenOutcome,
)

pytestmark = pytest.mark.database

PRODUCT = "postgres"

PATIENCE = 2.5  # the deadline is one second; the machine may be busy


@pytest.fixture
def sqlite_engine(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")
    yield engine
    engine.dispose()


@pytest.fixture
def sqlite_store(sqlite_engine):
    store = SqlStore(sqlite_engine)
    store.create_table()
    yield store
    store.close()


def behind(engine, statement):
    with engine.begin() as connection:
        return connection.execute(text(statement))


def through_a_proxy(proxy, url):
    database = url.rpartition("/")[2]
    return SqlStore(
        create_engine(
            f"postgresql+psycopg://postgres@127.0.0.1:{proxy.port}/{database}?sslmode=disable"
            "&gssencmode=disable"
        )
    )


class TestAServer:
    def test_that_closed_an_idle_connection_is_asked_on_another(self, store, engine):
        store.put_token("t", b"", 60)
        behind(engine, _ALL_OTHERS_END)
        assert store.take_token("t", b"") is TokenOutcome.TAKEN  # which is sent once

    def test_that_answers_nothing_any_more_leaves_it_open_whether_it_was_sent(
        self, postgres, store, url
    ):
        with Proxy(postgres) as proxy:
            far = through_a_proxy(proxy, url)
            far.ping()
            proxy.drop_next_replies(1, after=b"owner")
            proxy.lead_to(_Nowhere)  # the second attempt does not even connect
            error, _ = timed_failure(lambda: claim(far))
            assert error.sent
            far.close()
        assert until(lambda: store.peek("k"))  # it did arrive


class _Nowhere:
    port = 1


_ALL_OTHERS_END = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
)


class TestALock:
    def test_of_another_writer_on_sqlite_ends_in_an_error_in_time(
        self, sqlite_store, sqlite_engine
    ):
        mine = owner()
        sqlite_store.claim("k", mine, NO_FINGERPRINT, 60, 0)
        with sqlite_engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            error, took = timed_failure(lambda: claim(sqlite_store, "other"))
            assert not error.sent
            assert took < PATIENCE
            for call in (
                lambda: sqlite_store.complete("k", mine, NO_FINGERPRINT, b"r", 60),
                lambda: sqlite_store.release("k", mine),
                lambda: sqlite_store.put_token("t", b"", 60),
            ):
                assert not timed_failure(call)[0].sent
            assert isinstance(claim(sqlite_store), Running)  # who only looks need not wait
            connection.exec_driver_sql("ROLLBACK")
        sqlite_store.release("k", mine)
        works(sqlite_store)

    def test_makes_many_writers_on_sqlite_wait_no_longer_than_the_deadline(
        self, sqlite_store, sqlite_engine
    ):
        with sqlite_engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            calls = [
                lambda n=n: timed_failure(lambda: claim(sqlite_store, f"k{n}")) for n in range(40)
            ]
            assert max(took for _, took in all_at_once(calls)) < PATIENCE
            connection.exec_driver_sql("ROLLBACK")


RAISES = """
CREATE SEQUENCE attempts;
CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF nextval('attempts') <= {times} THEN
    RAISE EXCEPTION 'a conflict' USING ERRCODE = '{state}';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER raises BEFORE INSERT ON flask_idempotence FOR EACH ROW EXECUTE FUNCTION raises();
"""


class TestAConflict:
    @pytest.fixture
    def raises(self, store, engine):
        def arrange(state, times):
            behind(engine, RAISES.format(state=state, times=times))

        yield arrange
        behind(
            engine,
            "DROP TRIGGER raises ON flask_idempotence; DROP FUNCTION raises; "
            "DROP SEQUENCE attempts",
        )

    @pytest.mark.parametrize("state", ["40001", "40P01"], ids=["serialisation", "deadlock"])
    def test_of_transactions_is_tried_again(self, store, engine, raises, state):
        raises(state, 3)
        assert claim(store) == Claimed()
        store.put_token("t", b"", 60)
        assert behind(engine, "SELECT last_value FROM attempts").scalar() == 5

    @pytest.mark.parametrize("state", ["40001", "40P01"])
    def test_that_does_not_end_is_not_tried_for_ever(self, store, engine, raises, state):
        raises(state, 1000)
        error, took = timed_failure(lambda: claim(store))
        assert not error.sent
        assert took < PATIENCE
        assert behind(engine, "SELECT last_value FROM attempts").scalar() == 6

    def test_of_another_kind_is_not_tried_again(self, store, engine, raises):
        raises("23514", 1000)
        error, _ = timed_failure(lambda: claim(store))
        assert not error.sent
        assert behind(engine, "SELECT last_value FROM attempts").scalar() == 1

    def test_is_none_where_batches_are_renewed_in_the_other_order(self, store):
        keys = {f"k{n}": owner() for n in range(100)}
        for key, mine in keys.items():
            store.claim(key, mine, NO_FINGERPRINT, 60, 0)
        there = [(key, mine, 60.0) for key, mine in keys.items()]

        def renew(renewals):
            return [store.renew(renewals).count(Outcome.OK) for _ in range(5)]

        counts = all_at_once([lambda: renew(there), lambda: renew(there[::-1])] * 2)
        assert counts == [[100] * 5] * 4


DEFAULTS = "ALTER DATABASE {} SET default_transaction_isolation = 'serializable'"


class TestIsolation:
    def test_is_ours_whatever_the_database_prefers(self, store, engine, url):
        name = url.rpartition("/")[2]
        behind(engine, DEFAULTS.format(name))
        try:
            other = SqlStore(engine)
            told = other._run(
                lambda connection: connection.sqlalchemy.scalar(text("SHOW transaction_isolation"))
            )
            assert told == "read committed"
            other.close()
        finally:
            behind(engine, f"ALTER DATABASE {name} RESET default_transaction_isolation")

    def test_and_limits_of_the_applications_own_connections_stay_as_they_are(self, store, engine):
        store.ping()
        assert behind(engine, "SHOW statement_timeout").scalar() == "0"
        assert behind(engine, "SHOW lock_timeout").scalar() == "0"


class TestATableThatIsNotReady:
    @pytest.fixture(params=["sqlite", "postgres"])
    def engine(self, request, tmp_path, postgres):
        url = (
            f"sqlite:///{tmp_path}/x.db" if request.param == "sqlite" else postgres.new_database()
        )
        engine = create_engine(url, poolclass=NullPool)
        yield engine
        engine.dispose()

    @pytest.fixture
    def bare(self, engine):
        store = SqlStore(engine)
        yield store
        store.close()

    def test_is_told_with_the_remedy(self, bare, engine):
        for call in (bare.ping, lambda: claim(bare), lambda: list(bare.scan("")), bare.prune):
            with pytest.raises(StoreNotReady, match="flask idempotence init-db") as caught:
                call()
            assert not caught.value.sent

    def test_because_it_is_of_another_version_is_told_with_the_remedy(self, bare, engine):
        bare.create_table()
        behind(engine, "ALTER TABLE flask_idempotence DROP COLUMN fingerprint")
        assert bare.create_table() is False
        for call in (bare.ping, lambda: claim(bare)):
            with pytest.raises(StoreNotReady, match="flask idempotence init-db"):
                call()
        assert bare.facts()[0].missing == ("fingerprint",)

    def test_refuses_requests_and_names_the_remedy_in_the_log(self, bare, caplog):
        app = make_app(store=bare)
        runs = []

        @app.post("/pay")
        @idempotent
        def pay():
            runs.append(1)
            return "paid"

        answer = app.test_client().post("/pay", headers={"Idempotency-Key": "k"})
        assert answer.status_code == 503
        assert "flask idempotence init-db" in caplog.text
        assert "init-db" not in answer.text
        assert not runs

    def test_is_made_once(self, bare, engine):
        assert bare.create_table() is True
        assert bare.create_table() is False
        works(bare)
        assert bare.facts()[0].missing == ()


class TestErrors:
    def test_tell_no_password_and_no_values(self, postgres):
        engine = create_engine(postgres.url("nowhere").replace("postgres@", "postgres:hunter2@"))
        error, _ = timed_failure(lambda: claim(SqlStore(engine)))
        while error is not None:
            assert "hunter2" not in str(error)
            assert "INSERT" not in str(error)
            assert type(error).__module__.partition(".")[0] != "sqlalchemy"
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)

    def test_of_a_value_that_the_database_does_not_take_are_store_errors(self, store):
        error, _ = timed_failure(lambda: claim(store, "nul\0"))
        assert not error.sent

    def test_where_all_connections_are_taken_come_in_time(self, url, store):
        small = SqlStore(create_engine(url, pool_size=1, max_overflow=0))
        with small._pool.connection(time.monotonic() + 5):
            error, took = timed_failure(lambda: claim(small))
        assert not error.sent
        assert took < PATIENCE
        assert until(lambda: answers(small))
        small.close()


class TestConnections:
    def test_that_are_fewer_than_threads_are_handed_on(self, url, store):
        small = SqlStore(create_engine(url, pool_size=2, max_overflow=0), deadline=20)

        def work():
            return [claim(small, os.urandom(8).hex()) for _ in range(20)]

        started = time.monotonic()
        assert all_at_once([work] * 16) == [[Claimed()] * 20] * 16
        assert time.monotonic() - started < 15  # nobody sleeps through
        small.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
class TestAChildProcess:
    def test_makes_connections_of_its_own_and_leaves_the_parents_alone(self, store):
        def backend():
            return store._run(lambda c: c.sqlalchemy.scalar(text("SELECT pg_backend_pid()")))

        ours = backend()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            fine = backend() != ours and claim(store, "child") == Claimed()
            os._exit(0 if fine else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert backend() == ours
        assert isinstance(claim(store, "child"), Running)

    def test_does_not_inherit_who_writes_to_sqlite(self, sqlite_store):
        sqlite_store.ping()
        sqlite_store._dialect._lock.acquire()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if claim(sqlite_store, "child") == Claimed() else 1)
        assert os.waitpid(child, 0)[1] == 0
        sqlite_store._dialect._lock.release()
        assert isinstance(claim(sqlite_store, "child"), Running)
