"""Transactions of `within=` that InnoDB ends: 503 or the view's own error, and nothing by half."""

import json
import subprocess
import sys
import threading
from contextlib import closing

import pytest
from helpers.payment_database import PaymentApp, errors_as_text, pay, payments
from helpers.repository import ROOT
from helpers.servers.mariadb import MariaDbServer
from helpers.servers.processes import until
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

pytestmark = pytest.mark.database

UNAVAILABLE = "urn:flask-idempotence:store-unavailable"


@pytest.fixture
def url(mariadb):
    return mariadb.new_database()


@pytest.fixture
def site(url):
    site = site_at(url)
    yield site
    site.close()


def site_at(url):
    handlers = {OperationalError: lambda error: (str(error.orig), 500)}
    engine = {"connect_args": IMPATIENT}
    site = errors_as_text(PaymentApp(url, engine=engine, handlers=handlers))
    for amount in (1, 2):
        assert site.post(key=f"row-{amount}", amount=amount).status_code == 201
    return site


IMPATIENT = {"init_command": "SET SESSION innodb_lock_wait_timeout = 1"}


def is_unavailable(answer):
    return (answer.status_code, answer.json["type"]) == (503, UNAVAILABLE)


def is_free(site):
    return until(lambda: len(list(site.store.scan(""))) == 2, 10)


def change(session, number, amount):
    session.execute(update(payments).where(payments.c.id == number).values(amount=amount))


def as_victim(server, url, session):
    """Have a deadlock undo the transaction of a session, since its rival has changed more."""
    with closing(server.connect(url.rpartition("/")[2], autocommit=False)) as rival:
        cursor = rival.cursor()
        for _ in range(50):
            cursor.execute("INSERT INTO payments (amount) VALUES (0)")
        cursor.execute("UPDATE payments SET amount = 5 WHERE id = 2")
        change(session, 1, 10)

        def cross():
            cursor.execute("UPDATE payments SET amount = 6 WHERE id = 1")

        crossing = threading.Thread(target=cross)
        crossing.start()
        assert until(lambda: waits(server), 5)
        try:
            change(session, 2, 10)
        finally:
            crossing.join()
            rival.rollback()


def waits(server):
    rows = server.execute("SELECT 1 FROM information_schema.innodb_trx WHERE trx_wait_started > 0")
    return bool(rows)


class TestADeadlock:
    def test_that_the_view_does_not_catch_is_its_own_error_and_frees_the_key(
        self, site, mariadb, url
    ):
        site._view = lambda session: as_victim(mariadb, url, session)
        answer = site.post()
        assert (answer.status_code, "1213" in answer.text) == (500, True)
        assert site.amounts() == [1, 2]
        assert is_free(site)

    def test_that_the_view_swallows_is_refused_since_its_writes_are_gone(self, site, mariadb, url):
        def view(session):
            pay(session, 7)
            with pytest.raises(OperationalError, match="1213"):
                as_victim(mariadb, url, session)
            pay(session, 8)  # in a transaction that the guard has not begun
            return "paid"

        site._view = view
        answer = site.post()
        assert (answer.status_code, "begin_nested" in answer.text) == (500, True)
        assert "rolled back everything" in answer.text
        assert site.amounts() == [1, 2]
        assert is_free(site)

    @pytest.mark.parametrize("number", [1213, 1205])
    def test_in_the_completion_is_503_and_rolled_back(self, site, mariadb, url, number):
        name = url.rpartition("/")[2]
        mariadb.execute(SIGNALS.format(number=number), database=name)
        assert is_unavailable(site.post(amount=7))
        assert site.amounts() == [1, 2]
        assert is_free(site)
        mariadb.execute("DROP TRIGGER signals", database=name)
        assert site.post(amount=7).status_code == 201
        assert site.amounts() == [1, 2, 7]


SIGNALS = """
CREATE TRIGGER signals BEFORE UPDATE ON flask_idempotence FOR EACH ROW
IF NEW.kind = 'record' THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = {number}; END IF
"""


class TestALockTimeOut:
    def test_in_the_completion_is_503_and_rolled_back(self, site, mariadb, url):
        with closing(mariadb.connect(url.rpartition("/")[2], autocommit=False)) as rival:

            def view(session):
                rival.cursor().execute("SELECT * FROM flask_idempotence FOR UPDATE")
                return site.pay(session, 7)

            site._view = view
            assert is_unavailable(site.post())
            assert site.amounts() == [1, 2]
            rival.rollback()
        assert is_free(site)
        site._view = None
        assert site.post(amount=7).status_code == 201
        assert site.amounts() == [1, 2, 7]

    def test_that_the_view_swallows_has_undone_that_statement_alone(self, site, mariadb, url):
        assert swallow(site, mariadb, url).status_code == 200
        assert site.amounts() == [1, 2, 7, 8]

    def test_that_the_view_swallows_is_refused_where_it_undoes_all(self):
        with MariaDbServer(innodb_rollback_on_timeout=1) as server:
            url = server.new_database()
            site = site_at(url)
            answer = swallow(site, server, url)
            assert (answer.status_code, "begin_nested" in answer.text) == (500, True)
            assert site.amounts() == [1, 2]
            assert is_free(site)
            site.close()


def swallow(site, server, url):
    with closing(server.connect(url.rpartition("/")[2], autocommit=False)) as rival:
        rival.cursor().execute("UPDATE payments SET amount = 5 WHERE id = 2")

        def view(session):
            pay(session, 7)
            with pytest.raises(OperationalError, match="1205"):
                change(session, 2, 10)
            rival.rollback()
            pay(session, 8)
            return "paid"

        site._view = view
        return site.post()


class TestAConnection:
    @pytest.mark.parametrize("is_checked", [False, True])
    def test_that_wait_timeout_closed_is_503_at_worst(self, fresh_mariadb, is_checked):
        url = fresh_mariadb.new_database()
        site = PaymentApp(url, engine={"pool_pre_ping": is_checked})
        fresh_mariadb.execute("SET GLOBAL wait_timeout = 1")
        site.engine.dispose()
        assert site.post(key="first", amount=1).status_code == 201
        assert until(lambda: not fresh_mariadb.sleeping(), 10)
        answer = site.post(amount=2)
        assert answer.status_code == 201 if is_checked else is_unavailable(answer)
        assert until(lambda: site.post(amount=2).status_code == 201, 10)
        assert site.amounts() == [1, 2]
        site.close()

    def test_killed_before_the_commit_is_503_and_never_a_success(self, site, mariadb):
        def view(session):
            commit = session().commit
            session().commit = lambda: (kill(mariadb, session), commit())
            return site.pay(session, 7)

        site._view = view
        assert is_unavailable(site.post())
        assert site.amounts() == [1, 2]

    def test_killed_after_the_commit_is_a_success(self, site, mariadb):
        """The server kills the connection while the COMMIT is on its way back."""

        def view(session):
            commit = session().commit

            def cut_off():
                driver = session.connection().connection.dbapi_connection
                session.connection().exec_driver_sql("COMMIT")
                mariadb.execute(f"KILL {driver.thread_id()}")
                commit()

            session().commit = cut_off
            return site.pay(session, 7)

        site._view = view
        assert site.post().status_code == 201
        assert site.amounts() == [1, 2, 7]
        assert site.post().headers["Idempotent-Replayed"] == "true"


def kill(server, session):
    server.execute(f"KILL {session.connection().connection.dbapi_connection.thread_id()}")


PROCESSES, THREADS, ROUNDS = 4, 16, 3

CALLERS = """
import json, sys, threading
from collections import Counter
from helpers.payment_database import PaymentApp

url, level, threads, process = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
site = PaymentApp(url, prepare=False, deadline=30,
    engine={"pool_size": threads, "pool_timeout": 60, "isolation_level": level})
print("ready", flush=True)
for line in sys.stdin:
    answers = []
    barrier = threading.Barrier(threads)
    def send(which):
        key = line.strip() or f"{process}-{which}"
        barrier.wait()
        answers.append(site.post(key=f"{key}", amount=1).status_code)
    crowd = [threading.Thread(target=send, args=(which,)) for which in range(threads)]
    for each in crowd: each.start()
    for each in crowd: each.join()
    print(json.dumps(Counter(answers)), flush=True)
site.close()
"""


@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED"])
def test_64_callers_in_four_processes_get_no_error_of_the_database(
    fresh_mariadb, level, record_property
):
    url = fresh_mariadb.new_database()
    site = PaymentApp(url)
    command = [sys.executable, "-c", CALLERS, url, level, str(THREADS)]
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    options["cwd"] = ROOT / "tests"
    callers = [subprocess.Popen([*command, f"p{n}"], **options) for n in range(PROCESSES)]
    before = fresh_mariadb.deadlocks()

    def send(key):
        for each in callers:
            each.stdin.write(f"{key}\n")
            each.stdin.flush()
        answers = [json.loads(each.stdout.readline()) for each in callers]
        return {status for each in answers for status in each}, sum(
            each.get("201", 0) for each in answers
        )

    try:
        assert [each.stdout.readline() for each in callers] == ["ready\n"] * PROCESSES
        assert send("") == ({"201"}, PROCESSES * THREADS)
        assert site.count() == PROCESSES * THREADS
        for number in range(ROUNDS):
            statuses, _ = send(f"key {number}")
            assert statuses <= {"201", "409"}
            assert site.count() == PROCESSES * THREADS + number + 1
    finally:
        for each in callers:
            each.communicate(timeout=60)
    found = fresh_mariadb.deadlocks() - before
    record_property("report", f"{level}: {found} deadlocks in {(ROUNDS + 1) * 64} requests")
    assert found <= ROUNDS
    site.close()
