"""Failures of a MariaDB or MySQL server: an error in time, and nothing half done."""

import itertools
import os
import shutil
import subprocess
from contextlib import contextmanager, suppress

import pymysql
import pytest
from helpers.servers.processes import until
from helpers.store_assertions import (
    answers,
    claim,
    owner,
    timed_failure,
    works,
)
from sqlalchemy import create_engine

from flask_idempotence import SqlStore, StoreError
from flask_idempotence.stores.base import (
    NO_FINGERPRINT,
    Claimed,
    Done,
    Outcome,
    Running,
    TokenOutcome,
)

pytestmark = pytest.mark.database

PRODUCT = "mariadb"

DEADLINE = 2
PATIENCE = DEADLINE + 1.5  # the machine may be busy


def store_at(url, deadline=DEADLINE, **options):
    return SqlStore(create_engine(url, **options), deadline=deadline)


@pytest.fixture
def store(url):
    store = store_at(url)
    store.create_table()
    store.clear("")
    yield store
    store.close()


@pytest.fixture
def fresh_store(fresh_mariadb):
    store = store_at(fresh_mariadb.new_database())
    store.create_table()
    yield store
    store.close()


class TestAServer:
    def test_that_closed_idle_connections_costs_nothing(self, fresh_mariadb, fresh_store):
        fresh_mariadb.execute("SET GLOBAL wait_timeout = 1")
        fresh_store.put_token("t", b"", 60)
        assert until(lambda: not fresh_mariadb.sleeping(), 10)
        assert fresh_store.take_token("t", b"") is TokenOutcome.TAKEN  # which is sent once

    def test_that_killed_idle_connections_costs_nothing(self, mariadb, store):
        store.put_token("t", b"", 60)
        for number in mariadb.sleeping():
            mariadb.execute(f"KILL {number}")
        assert store.take_token("t", b"") is TokenOutcome.TAKEN

    def test_with_no_connection_left_is_an_error_at_once(self, fresh_mariadb, fresh_store):
        works(fresh_store)
        fresh_store.close()
        name = fresh_store.engine.url.database
        fresh_mariadb.execute(
            "CREATE USER app@'127.0.0.1'", f"GRANT ALL ON {name}.* TO app@'127.0.0.1'"
        )
        crowded = store_at(fresh_mariadb.url(name).replace("root@", "app@"))
        fresh_mariadb.execute("SET GLOBAL max_connections = 10")
        held = []
        with suppress(pymysql.OperationalError):
            while True:
                held.append(fresh_mariadb.connect())
        error, took = timed_failure(lambda: claim(crowded))
        assert not error.sent
        assert "1040" in str(error)
        assert took < PATIENCE
        for each in held:
            each.close()
        assert until(lambda: answers(crowded))
        works(crowded)
        crowded.close()


class TestAServerThatCannotWrite:
    """Claims are refused; records are still replayed, since a replay only reads."""

    @contextmanager
    def replays_only(self, store, number):
        mine = owner()
        assert store.claim("done", mine, NO_FINGERPRINT, 60, 0) == Claimed()
        assert store.complete("done", mine, NO_FINGERPRINT, b"r", 60) is Outcome.OK
        yield
        for call in (lambda: claim(store), lambda: store.put_token("t", b"", 60)):
            error, took = timed_failure(call)
            assert not error.sent
            assert f"({number}," in str(error)
            assert took < PATIENCE
        assert claim(store, "done") == Done(True, b"r")

    @pytest.mark.parametrize(
        ("variable", "number"), [("read_only", 1290), ("transaction_read_only", 1792)]
    )
    def test_after_a_failover_to_a_replica(self, fresh_mariadb, fresh_store, variable, number):
        name = fresh_store.engine.url.database
        fresh_mariadb.execute(
            "CREATE USER app@'127.0.0.1'", f"GRANT ALL ON {name}.* TO app@'127.0.0.1'"
        )
        if variable == "transaction_read_only" and not fresh_mariadb.is_mysql:
            variable = "tx_read_only"
        store = store_at(fresh_mariadb.url(name).replace("root@", "app@"))
        with self.replays_only(store, number):
            fresh_mariadb.execute(f"SET GLOBAL {variable} = ON")
            store.close()  # a session keeps its own transaction_read_only
        fresh_mariadb.execute(f"SET GLOBAL {variable} = OFF")
        store.close()
        works(store)
        store.close()

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
    def test_because_its_disk_is_full(self, fresh_mariadb, fresh_store):
        if fresh_mariadb.is_mysql:
            pytest.skip("MySQL takes the directory of a table at its start only")
        disk = fresh_mariadb.directory / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)], check=True)
        try:
            shutil.chown(disk, "nobody", "nogroup")
            self.fill_and_free(fresh_mariadb, fresh_store, disk)
        finally:
            fresh_mariadb.stop()
            subprocess.run(["umount", str(disk)], check=True)

    def fill_and_free(self, server, store, disk):
        create, index, _ = store.ddl().split(";")
        database = store.engine.url.database
        moved = f"{create} DATA DIRECTORY='{disk}'"
        server.execute("DROP TABLE flask_idempotence", moved, index, database=database)
        mine, record = owner(), bytes(100_000)

        def complete(key):
            return store.complete(key, mine, NO_FINGERPRINT, record, 60)

        completed = []

        def fill():
            for number in itertools.count():
                key = f"k{number}"
                assert store.claim(key, mine, NO_FINGERPRINT, 60, 0) == Claimed()
                assert complete(key) is Outcome.OK
                completed.append(key)

        def fill_what_is_left():
            for number in itertools.count():
                claim(store, f"small:{number:0700}")

        for call in (fill, fill_what_is_left):
            error, _ = timed_failure(call)
            assert "1114" in str(error)  # ER_RECORD_FILE_FULL
            assert not error.sent
        key = f"k{len(completed)}"
        assert isinstance(claim(store, key), Running)  # not half completed
        assert claim(store, completed[0]) == Done(True, record)
        for each in completed:
            store.remove(each)
        assert until(lambda: has_room(lambda: complete(key)), 20)  # InnoDB purges later


def has_room(call):
    try:
        return call() is Outcome.OK
    except StoreError:
        return False
