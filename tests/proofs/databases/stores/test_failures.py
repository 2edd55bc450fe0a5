"""A database that is away, slow, busy or not set up: a clear error, and nothing half done."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.servers.processes import all_at_once, until
from helpers.sql_stores import sql_store
from helpers.store_assertions import claim, is_true_in_a_child, owner, timed_failure, works
from sqlalchemy import NullPool, create_engine, event, text

from flask_idempotence import SqlStore
from flask_idempotence.errors import StoreNotReady
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Done, Outcome, Renewal, Running
from flask_idempotence.stores.sql import metadata
from flask_idempotence.stores.sql.pool import _timer

pytestmark = pytest.mark.database

PRODUCT = "postgres"

PATIENCE = 2.5  # the deadline is one second; the machine may be busy


@pytest.fixture
def sqlite_store(tmp_path):
    with sql_store(f"sqlite:///{tmp_path}/app.db", deadline=1) as store:
        yield store


def test_a_batch_locks_its_rows_in_the_order_of_the_keys(postgres):
    """In that of the table, which each renewal changes, two batches would meet in a deadlock."""
    url, mine = postgres.new_database(), owner()
    for plan in ("indexscan", "bitmapscan"):
        postgres.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET enable_{plan} = off")
    lock = "SELECT key FROM flask_idempotence WHERE key = '{}' FOR UPDATE SKIP LOCKED"

    def is_locked(key):
        with store.engine.begin() as connection:
            return connection.exec_driver_sql(lock.format(key)).first() is None

    with sql_store(url) as store, ThreadPoolExecutor() as threads:
        for key in "ba":
            store.claim(key, mine, NO_FINGERPRINT, 60, 0)
        with store.engine.begin() as connection:
            assert connection.exec_driver_sql(lock.format("b")).first()
            renewed = threads.submit(store.renew, [Renewal(key, mine, 60) for key in "ab"])
            assert until(lambda: is_locked("a"), 2)
        assert renewed.result() == [Outcome.OK] * 2


def test_the_isolation_is_our_own(url, store):
    preferred = {"options": "-c default_transaction_isolation=serializable"}
    shown = text("SHOW transaction_isolation")
    with sql_store(url, connect_args=preferred) as other:
        found = other._run(lambda connection: connection.sqlalchemy.scalar(shown))
    assert found == "read committed"


OTHER_TABLES = {
    "a column is missing": ("fingerprint", "other"),
    "a column more must be filled in": ("kind VARCHAR", "more INTEGER NOT NULL, kind VARCHAR"),
    "the key is not unique": ("PRIMARY KEY (", "CHECK (LENGTH("),
}


@pytest.mark.parametrize("change", OTHER_TABLES)
@pytest.mark.parametrize("product", ["sqlite", "postgres", "mariadb"])
def test_a_table_of_another_version_is_told_with_the_remedy(request, tmp_path, product, change):
    url = f"sqlite:///{tmp_path}/x.db"
    if product != "sqlite":
        url = request.getfixturevalue(product).new_database()
    before, after = OTHER_TABLES[change]
    with sql_store(url, create=False) as store:
        create = store.ddl().split(";")[0]
        assert before in create
        changed = create.replace(before, after)
        if "CHECK" in after:
            end = changed.index(")", changed.index("CHECK"))
            changed = f"{changed[:end]}) > 0{changed[end:]}"
        with store.engine.begin() as connection:
            connection.execute(text(changed))
        for _ in range(2):
            with pytest.raises(StoreNotReady, match="init-db") as caught:
                claim(store)
            assert not caught.value.sent


def test_a_full_disk_under_sqlite_refuses_claims_and_replays_records(sqlite_store):
    def fill():
        for key in map(str, range(1000)):
            assert claim(sqlite_store, key, 60) == Claimed()
            sqlite_store.remove(key)
            sqlite_store.complete(key, owner(), NO_FINGERPRINT, bytes(5000), 60)
            completed.append(key)

    @event.listens_for(sqlite_store.engine, "connect")
    def limit(made, _):
        made.execute("PRAGMA max_page_count = 60")

    completed, sqlite_store = [], SqlStore(sqlite_store.engine)
    error, _ = timed_failure(fill)
    assert "full" in str(error)
    assert not error.sent
    assert all(isinstance(claim(sqlite_store, key), Done) for key in completed)
    assert sqlite_store.peek(str(len(completed))) is None  # not half completed
    for key in completed:
        sqlite_store.remove(key)
    works(sqlite_store)
    sqlite_store.close()


@pytest.mark.parametrize("product", ["sqlite", "postgres", "mariadb"])
def test_of_six_who_make_the_table_at_once_one_has_and_nobody_fails(request, tmp_path, product):
    url = f"sqlite:///{tmp_path}/x.db"
    if product != "sqlite":
        url = request.getfixturevalue(product).new_database()
    stores = [SqlStore(create_engine(url, poolclass=NullPool)) for _ in range(6)]
    all_have_looked = threading.Barrier(6)

    def meet(*_, **__):
        all_have_looked.wait(30)

    event.listen(metadata, "before_create", meet)
    try:
        found = all_at_once([store.create_table for store in stores])
    finally:
        event.remove(metadata, "before_create", meet)
    assert sorted(found) == [False] * 5 + [True]
    for store in stores:
        works(store)
        store.close()


def test_errors_tell_no_password_and_no_values(postgres):
    engine = create_engine(postgres.url("nowhere").replace("postgres@", "postgres:hunter2@"))
    error, _ = timed_failure(lambda: claim(SqlStore(engine)))
    while error is not None:
        assert "hunter2" not in str(error)
        assert "INSERT" not in str(error)
        assert type(error).__module__.partition(".")[0] != "sqlalchemy"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
class TestAChildProcess:
    def test_makes_connections_of_its_own_and_leaves_the_parents_alone(self, store):
        def backend():
            return store._run(lambda c: c.sqlalchemy.scalar(text("SELECT pg_backend_pid()")))

        ours = backend()
        assert is_true_in_a_child(lambda: backend() != ours and claim(store) == Claimed())
        assert backend() == ours
        assert isinstance(claim(store), Running)

    def test_inherits_no_lock_that_another_thread_held(self, store):
        store.ping()
        with store._pool._lock, store._circuit._lock, _timer._changed:
            assert is_true_in_a_child(lambda: claim(store) == Claimed())

    def test_does_not_inherit_who_writes_to_sqlite(self, sqlite_store):
        sqlite_store.ping()
        with sqlite_store._dialect._lock:
            assert is_true_in_a_child(lambda: claim(sqlite_store) == Claimed())
        assert isinstance(claim(sqlite_store), Running)
