"""Locks, kills, deadlocks and full disks of InnoDB: in time, and never a false success."""

import itertools
import os
import shutil
import subprocess
import threading
from contextlib import closing, suppress

import pymysql
import pytest
from helpers.servers.processes import all_at_once, until
from helpers.sql_stores import sql_store
from helpers.store_assertions import answers, claim, owner, timed_failure, works

from flask_idempotence import StoreError
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Done, Outcome, Renewal, Running

pytestmark = pytest.mark.database

PRODUCT = "mariadb"

DEADLINE = 2
PATIENCE = DEADLINE + 1.5  # the machine may be busy


def test_a_first_insert_that_is_undone_leaves_the_key_to_one_of_those_who_wait(store):
    mine = owner()
    for _ in range(5):
        with store.engine.begin() as connection:
            store.complete_in(connection, "k", mine, NO_FINGERPRINT, b"r", 60)
            undo = threading.Timer(0.5, connection.rollback)
            undo.start()
            found = all_at_once([lambda: claim(store)] * 8)
            undo.join()
        assert sum(each == Claimed() for each in found) == 1
        assert sum(isinstance(each, Running) for each in found) == 7
        store.remove("k")


@pytest.mark.parametrize("what", ["QUERY", "CONNECTION"])
def test_a_kill_of_a_statement_that_waits_for_a_lock_is_no_success(mariadb, store, what):
    mine, killed = owner(), []
    store.claim("k", mine, NO_FINGERPRINT, 60, 0)

    def kill():
        assert until(lambda: killed.extend(waits_in(mariadb, "DELETE")) or killed)
        mariadb.execute(f"KILL {what} {killed[0]}")

    with store.engine.begin() as connection:
        store.complete_in(connection, "k", mine, NO_FINGERPRINT, b"r", 60)
        killer = threading.Thread(target=kill)
        killer.start()
        error, took = timed_failure(lambda: store.release("k", mine))
        killer.join()
    assert killed
    assert took < PATIENCE
    assert error.sent is (what == "CONNECTION")  # the second attempt waits, too
    assert claim(store) == Done(True, b"r")


def waits_in(server, word):
    query = f"SELECT id FROM information_schema.processlist WHERE info LIKE '{word}%'"
    return [row[0] for row in server.execute(query)]


def test_a_deadlock_with_a_transaction_that_has_changed_more_costs_the_caller_nothing(
    mariadb, store, url
):
    """The victim is the one that has changed less: ours."""
    mine = owner()
    keys = [f"k{number}" for number in range(20)]
    for key in keys:
        store.claim(key, mine, NO_FINGERPRINT, 60, 0)
    before = mariadb.deadlocks()
    with closing(mariadb.connect(url.rpartition("/")[2], autocommit=False)) as rival:
        cursor = rival.cursor()
        cursor.execute("CREATE TABLE IF NOT EXISTS weight (n INT) ENGINE=InnoDB")
        cursor.executemany("INSERT INTO weight VALUES (%s)", [(n,) for n in range(1000)])
        lock = "SELECT * FROM flask_idempotence WHERE `key` = %s FOR UPDATE"
        cursor.execute(lock, (keys[-1],))
        found = []
        renewals = [Renewal(key, mine, 60) for key in keys]
        ours = threading.Thread(target=lambda: found.extend(store.renew(renewals)))
        ours.start()
        assert until(lambda: waits_in(mariadb, "UPDATE"), 5)
        cursor.execute(lock, (keys[0],))
        rival.rollback()
        ours.join()
    assert mariadb.deadlocks() == before + 1
    assert found == [Outcome.OK] * 20


@pytest.fixture
def fresh_store(fresh_mariadb):
    """A store of a user without rights on the server itself."""
    url = fresh_mariadb.new_database()
    fresh_mariadb.execute(
        "CREATE USER app@'127.0.0.1'",
        f"GRANT ALL ON {url.rpartition('/')[2]}.* TO app@'127.0.0.1'",
    )
    with sql_store(url.replace("root@", "app@"), deadline=DEADLINE) as store:
        yield store


def test_a_server_with_no_connection_left_is_an_error_at_once(fresh_mariadb, fresh_store):
    works(fresh_store)
    fresh_store.close()
    fresh_mariadb.execute("SET GLOBAL max_connections = 10")
    held = []
    with suppress(pymysql.OperationalError):
        while True:
            held.append(fresh_mariadb.connect())
    error, took = timed_failure(lambda: claim(fresh_store))
    assert not error.sent
    assert "1040" in str(error)
    assert took < PATIENCE
    for each in held:
        each.close()
    assert until(lambda: answers(fresh_store))
    works(fresh_store)


class TestAServerThatCannotWrite:
    """Claims are refused; records are still replayed, since a replay only reads."""

    @pytest.mark.parametrize(
        ("variable", "number"), [("read_only", 1290), ("transaction_read_only", 1792)]
    )
    def test_after_a_failover_to_a_replica(self, fresh_mariadb, fresh_store, variable, number):
        if variable == "transaction_read_only" and not fresh_mariadb.is_mysql:
            variable = "tx_read_only"
        store = fresh_store
        store.complete("done", owner(), NO_FINGERPRINT, b"r", 60)
        fresh_mariadb.execute(f"SET GLOBAL {variable} = ON")
        store.close()  # a session keeps its own transaction_read_only
        for call in (lambda: claim(store), lambda: store.put_token("t", b"", 60)):
            error, took = timed_failure(call)
            assert not error.sent
            assert f"({number}," in str(error)
            assert took < PATIENCE
        assert claim(store, "done") == Done(True, b"r")
        fresh_mariadb.execute(f"SET GLOBAL {variable} = OFF")
        store.close()
        works(store)

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
        moved = f"{create} DATA DIRECTORY='{disk}'"
        drop = "DROP TABLE flask_idempotence"
        server.execute(drop, moved, index, database=store.engine.url.database)
        mine, record, completed = owner(), bytes(100_000), []

        def complete(key):
            return store.complete(key, mine, NO_FINGERPRINT, record, 60)

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

        def has_room():
            with suppress(StoreError):
                return complete(key) is Outcome.OK

        assert until(has_room, 20)  # InnoDB purges later
