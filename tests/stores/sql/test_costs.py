"""What a guarded request costs a database, and what pruning does: how often, and how much."""

import gc
import logging
import os
import threading

import pytest
from helpers.apps import make_app
from helpers.servers.processes import all_at_once, until
from helpers.sql_stores import sql_store
from sqlalchemy import create_engine, text

from flask_idempotence import SqlStore, StoreError, idempotent, no_repeat_submit, one_time_token
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Renewal
from flask_idempotence.stores.sql import store as pruning
from flask_idempotence.stores.sql.store import BATCH, EVERY, REST


def costs(store, during):
    """Return what two requests with a key, two that are locked, and a spent token cost."""
    app = make_app(store=store)
    for name, guard in {
        "key": idempotent,
        "lock": no_repeat_submit(30),
        "spend": one_time_token(),
    }.items():
        app.add_url_rule(f"/{name}", name, guard(lambda: "done"), methods=["POST"])
    client = app.test_client()
    token = client.get("/token").get_json()["token"]
    headers = {"Idempotency-Key": "k", "Idempotence-Token": token}
    paths = ("/key", "/key", "/lock", "/lock", "/spend")
    return [during(lambda path=path: client.post(path, headers=headers)) for path in paths]


def claims(store, count):
    renewals = [Renewal(f"k{number}", os.urandom(16), 60) for number in range(count)]
    for key, owner, _ in renewals:
        store.claim(key, owner, NO_FINGERPRINT, 60, 0)
    return renewals


@pytest.fixture
def sqlite(tmp_path):
    with sql_store(f"sqlite:///{tmp_path}/app.db", deadline=10) as store:
        yield store


@pytest.fixture
def on_postgres(postgres):
    url = postgres.new_database()
    postgres.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET log_statement = 'all'")
    with sql_store(url, deadline=1) as store:
        store.ping()  # on a connection that the pool keeps
        yield store


def test_commits_on_sqlite(sqlite, tmp_path):
    def commits():
        # Those that have changed the file: its header counts them (not in WAL mode).
        # https://www.sqlite.org/fileformat2.html#file_change_counter
        return int.from_bytes((tmp_path / "app.db").read_bytes()[24:28])

    def during(call):
        before = commits()
        call()
        return commits() - before

    assert costs(sqlite, during) == [2, 0, 1, 0, 1]  # a replay only reads


def test_no_wait_of_sqlite_leaves_a_prepared_statement(sqlite):
    def prepared():
        return sum(type(each).__name__ == "Statement" for each in gc.get_objects())

    def claim_within(seconds):
        sqlite._deadline = seconds
        sqlite.claim(f"key {seconds}", b"owner", NO_FINGERPRINT, 30, 0)

    claim_within(1)
    before = prepared()
    for number in range(2, 30):
        claim_within(number)
    assert before > 0
    assert prepared() == before


def test_a_connection_of_the_store_keeps_few_pages_and_one_of_the_application_its_own(sqlite):
    pragma = text("PRAGMA cache_size")
    kept = sqlite._run(lambda connection: connection.sqlalchemy.scalar(pragma))
    with sqlite.engine.connect() as connection:
        assert kept == -512 != connection.execute(pragma).scalar_one()


def test_statements_on_postgres(on_postgres, postgres):
    assert list(map(len, costs(on_postgres, postgres.statements))) == [2, 1, 1, 1, 1]
    renewals = claims(on_postgres, 100)
    assert len(postgres.statements(lambda: on_postgres.renew(renewals))) == 1
    renewals[7] = renewals[7]._replace(owner=os.urandom(16))
    # And a look which are left.
    assert len(postgres.statements(lambda: on_postgres.renew(renewals))) == 2


@pytest.fixture
def on_mariadb(mariadb):
    with sql_store(mariadb.new_database()) as store:
        store.release("warm", b"")
        store.know_schema()
        yield store
        mariadb.execute("SET GLOBAL general_log = 0")


def test_statements_on_mariadb(on_mariadb, mariadb):
    def queries(call):
        mariadb.execute("TRUNCATE mysql.general_log")
        call()
        rows = mariadb.execute(
            "SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log "
            "WHERE command_type = 'Query' AND argument LIKE '%flask_idempotence%' "
            "AND argument NOT LIKE '%general_log%'"
        )
        return [argument.split()[0] for (argument,) in rows]

    mariadb.execute("SET GLOBAL log_output = 'TABLE'", "SET GLOBAL general_log = 1")
    assert costs(on_mariadb, queries) == [
        ["SELECT", "INSERT", "INSERT"],  # each write commits by itself
        ["SELECT"],
        ["SELECT", "INSERT"],
        ["SELECT"],
        ["DELETE"],
    ]
    renewals = claims(on_mariadb, 100)
    assert queries(lambda: on_mariadb.renew(renewals)) == ["UPDATE"]


@pytest.fixture(params=["sqlite", "on_postgres", "on_mariadb"])
def store(request):
    return request.getfixturevalue(request.param)


CLOCKS = {
    "sqlite": "(julianday('now') - 2440587.5) * 864e5",
    "postgresql": "extract(epoch from statement_timestamp()) * 1000",
    "mysql": "UNIX_TIMESTAMP(NOW(6)) * 1000",
}


def fill(store, count, expires):
    dialect = store.engine.dialect
    quoted, clock = dialect.identifier_preparer.quote("key"), CLOCKS[dialect.name]
    rows = [{"key": f"p:{expires}:{number}"} for number in range(count)]
    insert = text(
        f"INSERT INTO flask_idempotence ({quoted}, kind, owner, fingerprint, lease_ends, expires) "
        f"VALUES (:key, 'claim', :bytes, :bytes, 0, {clock} + {expires})"
    )
    with store.engine.begin() as connection:
        connection.execute(insert, [row | {"bytes": bytes(16)} for row in rows])


def rows_of(store):
    with store.engine.connect() as connection:
        return connection.scalar(text("SELECT count(*) FROM flask_idempotence"))


class TestPruning:
    def test_removes_a_batch_of_what_has_expired(self, store):
        fill(store, 250, -1000)
        fill(store, 10, 60_000)
        assert [store.prune(100) for _ in range(4)] == [100, 100, 50, 0]
        assert len(list(store.scan(""))) == 10

    def test_comes_by_itself_when_enough_was_written(self, store):
        fill(store, 300, -1000)
        store._written = EVERY - 2
        store.put_token("a", b"", 60)
        assert rows_of(store) == 301
        store.put_token("b", b"", 60)
        assert until(lambda: rows_of(store) == 2, 20)

    def test_spares_a_row_that_is_claimed_meanwhile(self, store):
        fill(store, 50, -1000)
        keys = [f"p:-1000:{number}" for number in range(50)]
        stop = threading.Event()

        def prune():
            while not stop.is_set():
                store.prune(3)

        def claim_all():
            try:
                return [store.claim(key, os.urandom(16), NO_FINGERPRINT, 60, 0) for key in keys]
            finally:
                stop.set()

        assert all_at_once([claim_all, *[prune] * 3])[0] == [Claimed()] * 50
        assert sorted(store.scan("")) == sorted(keys)


def test_pruning_passes_over_rows_that_others_are_at(on_postgres):
    fill(on_postgres, 10, -1000)
    with on_postgres.engine.begin() as connection:
        connection.execute(text("SELECT 1 FROM flask_idempotence LIMIT 4 FOR UPDATE")).all()
        assert on_postgres.prune(100) == 6
    assert on_postgres.prune(100) == 4


@pytest.fixture
def rests(monkeypatch):
    taken = []
    monkeypatch.setattr(pruning.time, "sleep", taken.append)
    return taken


@pytest.fixture
def threads(monkeypatch):
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
