"""Locks, kills and deadlocks of InnoDB: tried again in time, and never a false success."""

import threading
import time
from contextlib import closing

import pytest
from helpers.servers.processes import all_at_once, until
from helpers.store_assertions import claim, owner, timed_failure
from sqlalchemy import text

from flask_idempotence.stores.base import (
    NO_FINGERPRINT,
    Claimed,
    Done,
    Outcome,
    Renewal,
    Running,
)

pytestmark = pytest.mark.database

PRODUCT = "mariadb"

DEADLINE = 2
PATIENCE = DEADLINE + 1.5  # the machine may be busy


class TestALock:
    @pytest.fixture
    def completing(self, store, engine):
        """A transaction of `within=` that has completed the claim of `k`, and is open."""
        mine = owner()
        store.claim("k", mine, NO_FINGERPRINT, 60, 0)
        with engine.begin() as connection:
            assert store.complete_in(connection, "k", mine, NO_FINGERPRINT, b"r", 60) is Outcome.OK
            yield mine, connection

    def test_time_out_of_one_second_is_no_success_and_ends_the_statement_only(
        self, store, engine, completing
    ):
        mine, connection = completing
        with engine.connect() as other:
            other.execute(text("SET innodb_lock_wait_timeout = 1"))
            other.execute(text("CREATE TEMPORARY TABLE mark (n INT) ENGINE=InnoDB"))
            with pytest.raises(Exception, match="1205"):
                store.complete_in(other, "k", mine, NO_FINGERPRINT, b"other", 60)
        connection.commit()
        assert claim(store) == Done(True, b"r")

    def test_on_a_record_does_not_keep_replays_waiting(self, store, engine):
        mine = owner()
        store.claim("k", mine, NO_FINGERPRINT, 60, 0)
        store.complete("k", mine, NO_FINGERPRINT, b"r", 60)
        with engine.begin() as connection:
            connection.execute(text("SELECT * FROM flask_idempotence FOR UPDATE")).all()
            started = time.monotonic()
            assert claim(store) == Done(True, b"r")
            assert time.monotonic() - started < DEADLINE / 2

    def test_is_waited_for_when_a_commit_is_looked_up(self, store, completing):
        mine, connection = completing
        found = []
        looking = threading.Thread(target=lambda: found.append(store.look_up("k", mine)))
        looking.start()
        time.sleep(0.3)
        assert found == []
        connection.commit()
        looking.join()
        assert found == ["record"]

    def test_of_a_first_insert_that_is_undone_leaves_the_key_to_one_of_those_who_wait(
        self, store, engine
    ):
        mine = owner()
        for _ in range(5):
            with engine.begin() as connection:
                store.complete_in(connection, "k", mine, NO_FINGERPRINT, b"r", 60)
                undo = threading.Timer(0.5, connection.rollback)
                undo.start()
                found = all_at_once([lambda: claim(store)] * 8)
                undo.join()
            assert sum(each == Claimed() for each in found) == 1
            assert sum(isinstance(each, Running) for each in found) == 7
            store.remove("k")


class TestAKill:
    """Of a statement that waits for a lock."""

    @pytest.mark.parametrize("what", ["QUERY", "CONNECTION"])
    def test_of_it_is_no_success(self, mariadb, store, engine, what):
        mine = owner()
        store.claim("k", mine, NO_FINGERPRINT, 60, 0)
        with engine.begin() as connection:
            store.complete_in(connection, "k", mine, NO_FINGERPRINT, b"r", 60)
            killed = []

            def kill():
                waiting = []
                until(lambda: waiting.extend(waits_in(mariadb, "DELETE")) or waiting)
                killed.extend(waiting)
                mariadb.execute(f"KILL {what} {waiting[0]}")

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


RAISES = """
CREATE TRIGGER raises BEFORE {event} ON flask_idempotence FOR EACH ROW BEGIN
  UPDATE attempts SET number = number + 1;
  IF (SELECT number FROM attempts) <= {times} THEN
    SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = {number};
  END IF;
END
"""


class TestAConflict:
    @pytest.fixture
    def raises(self, store, mariadb, url):
        name = url.rpartition("/")[2]

        def arrange(number, times, event):
            mariadb.execute(
                "CREATE TABLE attempts (number INT) ENGINE=MyISAM",  # which no rollback undoes
                "INSERT INTO attempts VALUES (0)",
                RAISES.format(event=event, times=times, number=number),
                database=name,
            )

        arrange.attempts = lambda: mariadb.execute("SELECT number FROM attempts", database=name)[
            0
        ][0]
        yield arrange
        mariadb.execute("DROP TRIGGER raises", "DROP TABLE attempts", database=name)

    OPERATIONS = (
        ("INSERT", lambda store, mine: claim(store, "new"), Claimed()),
        (
            "UPDATE",
            lambda store, mine: store.complete("k", mine, NO_FINGERPRINT, b"r", 60),
            Outcome.OK,
        ),
        ("DELETE", lambda store, mine: store.release("k", mine), Outcome.OK),
        ("UPDATE", lambda store, mine: store.renew([Renewal("k", mine, 60)]), [Outcome.OK]),
    )

    @pytest.mark.parametrize(
        ("event", "call", "outcome"), OPERATIONS, ids=["claim", "complete", "release", "renew"]
    )
    def test_of_transactions_is_tried_again(self, store, raises, event, call, outcome):
        mine = owner()
        store.claim("k", mine, NO_FINGERPRINT, 60, 0)
        raises(1213, 3, event)
        assert call(store, mine) == outcome
        assert raises.attempts() == 4

    @pytest.mark.parametrize(("number", "attempts"), [(1213, 6), (1205, 1), (1644, 1)])
    def test_that_does_not_end_is_not_tried_for_ever(self, store, raises, number, attempts):
        raises(number, 1000, "INSERT")
        error, took = timed_failure(lambda: claim(store))
        assert not error.sent
        assert took < PATIENCE
        assert raises.attempts() == attempts

    def test_of_two_real_transactions_costs_the_caller_nothing(self, mariadb, store, url):
        """The victim is the transaction that has changed less: ours."""
        mine = owner()
        keys = [f"k{number}" for number in range(20)]
        for key in keys:
            store.claim(key, mine, NO_FINGERPRINT, 60, 0)
        before = mariadb.deadlocks()
        with closing(mariadb.connect(url.rpartition("/")[2], autocommit=False)) as rival:
            cursor = rival.cursor()
            cursor.execute("CREATE TEMPORARY TABLE ballast (n INT) ENGINE=InnoDB")
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


ROWS = 300_000
EXPIRED = f"""
INSERT INTO flask_idempotence (`key`, kind, owner, fingerprint, lease_ends, expires)
WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000)
SELECT CONCAT('expired:', SHA2(CONCAT(a.n, '-', b.n), 224)), 'claim', 'o', 'f', 0, 1
FROM s AS a CROSS JOIN s AS b WHERE (a.n - 1) * 1000 + b.n <= {ROWS}
"""


def test_pruning_300_000_rows_does_not_hold_claims_up(store, engine):
    with engine.begin() as connection:
        connection.execute(text(EXPIRED))
    is_over = threading.Event()
    pruned, longest, claims = [0], 0.0, 0

    def prune():
        while not is_over.is_set() and (count := store.prune(1000)):
            pruned[0] += count

    pruning = threading.Thread(target=prune)
    pruning.start()
    ends = time.monotonic() + 10
    while pruning.is_alive() and time.monotonic() < ends:
        started = time.monotonic()
        assert claim(store, f"{claims}", 60) == Claimed()
        longest = max(longest, time.monotonic() - started)
        claims += 1
    is_over.set()
    pruning.join()
    assert pruned[0] > 1000
    assert claims > 50
    assert longest < DEADLINE / 2
    assert claim(store, "0") != Claimed()
