"""Transactions of `within=` that InnoDB ends: 503 or the view's own error, and nothing by half."""

import threading
from contextlib import closing

import pytest
from helpers.payment_database import Payment, PaymentApp, is_unavailable, pay, payments
from helpers.row_locks import wait_for_waiting
from helpers.servers.mariadb import MariaDbServer
from helpers.servers.processes import all_at_once, until
from sqlalchemy import insert, text, update
from sqlalchemy.exc import IntegrityError, OperationalError

from flask_idempotence import ConfigurationError

pytestmark = pytest.mark.database

IMPATIENT = {"init_command": "SET SESSION innodb_lock_wait_timeout = 1"}


@pytest.fixture
def url(mariadb):
    return mariadb.new_database()


@pytest.fixture
def site(url):
    site = site_at(url)
    yield site
    site.close()


def site_at(url):
    as_text = dict.fromkeys((OperationalError, ConfigurationError), lambda e: (str(e), 500))
    site = PaymentApp(url, engine={"connect_args": IMPATIENT}, handlers=as_text)
    for amount in (1, 2):
        assert site.post(key=f"row-{amount}", amount=amount).status_code == 201
    return site


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
        cross = "UPDATE payments SET amount = 6 WHERE id = 1"
        crossing = threading.Thread(target=cursor.execute, args=[cross])
        crossing.start()
        wait_for_waiting(url, 1)
        try:
            change(session, 2, 10)
        finally:
            crossing.join()
            rival.rollback()


class TestADeadlock:
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

    def test_in_the_completion_is_503_and_rolled_back(self, site, mariadb, url):
        name = url.rpartition("/")[2]
        mariadb.execute(SIGNALS, database=name)
        refuse_once(site, lambda: mariadb.execute("DROP TRIGGER signals", database=name))


def refuse_once(site, heal):
    assert is_unavailable(site.post(amount=7))
    assert site.amounts() == [1, 2]
    heal()
    assert is_free(site)
    site._view = None
    assert site.post(amount=7).status_code == 201
    assert site.amounts() == [1, 2, 7]


SIGNALS = """
CREATE TRIGGER signals BEFORE UPDATE ON flask_idempotence FOR EACH ROW
IF NEW.kind = 'record' THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213; END IF
"""


class TestALockTimeOut:
    def test_in_the_completion_is_503_and_rolled_back(self, site, mariadb, url):
        with closing(mariadb.connect(url.rpartition("/")[2], autocommit=False)) as rival:

            def view(session):
                rival.cursor().execute("SELECT * FROM flask_idempotence FOR UPDATE")
                return site.pay(session, 7)

            site._view = view
            refuse_once(site, rival.rollback)

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


def test_a_connection_that_wait_timeout_closed_is_503_at_worst(fresh_mariadb):
    site = PaymentApp(fresh_mariadb.new_database())
    database = site.engine.url.database
    fresh_mariadb.execute("SET GLOBAL wait_timeout = 1")
    site.engine.dispose()
    assert site.post(key="first", amount=1).status_code == 201
    assert until(lambda: not fresh_mariadb.connections(database), 10)
    assert is_unavailable(site.post(amount=2))
    assert until(lambda: site.post(amount=2).status_code == 201, 10)
    assert site.amounts() == [1, 2]
    site.close()


CALLERS, ROUNDS = 64, 3


@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED"])
def test_64_callers_get_no_error_of_the_database(fresh_mariadb, level, record_property):
    options = {"pool_size": CALLERS, "pool_timeout": 60, "isolation_level": level}
    site = PaymentApp(fresh_mariadb.new_database(), deadline=30, engine=options)
    before = fresh_mariadb.deadlocks()

    def send(keys):
        calls = [lambda key=key: site.post(key=key, amount=1).status_code for key in keys]
        return set(all_at_once(calls))

    assert send([f"p{number}" for number in range(CALLERS)]) == {201}
    assert site.count() == CALLERS
    for number in range(ROUNDS):
        assert send([f"key {number}"] * CALLERS) <= {201, 409}
        assert site.count() == CALLERS + number + 1
    found = fresh_mariadb.deadlocks() - before
    record_property("report", f"{level}: {found} deadlocks in {(ROUNDS + 1) * CALLERS} requests")
    assert found <= ROUNDS
    site.close()


def test_a_view_may_go_on_after_a_statement_that_was_refused_alone(pay_app):
    def view(session):
        pay(session)
        with pytest.raises(IntegrityError):
            session.execute(insert(payments).values(amount=None))
        return "paid", 201

    site = pay_app(view)
    assert [site.post().status_code for _ in range(2)] == [201, 201]
    assert (site.runs, site.count()) == (1, 1)


@pytest.mark.parametrize("how", ["by an option", "since a view has said so"])
def test_connections_that_commit_by_themselves_get_a_transaction(pay_app, how):
    options = {"connect_args": {"autocommit": True}} if how == "by an option" else {}
    site = pay_app(engine=options | {"pool_size": 1, "max_overflow": 0})
    if how != "by an option":
        with site.engine.connect() as connection:
            connection.execute(text("SET autocommit = 1"))
    site._view = lambda session: (pay(session), ("no", 503))[1]
    assert (site.post().status_code, site.count()) == (503, 0)
    site._view = None
    assert [site.post().status_code for _ in range(2)] == [201, 201]
    assert site.count() == 1


def test_an_error_that_is_the_statements_own_is_the_applications(pay_app):
    """PyMySQL's OperationalError is the class of outages, and of an unknown column."""
    site = pay_app(lambda session: (session.add(Payment(amount=1)), "paid")[1])
    with site.engine.begin() as connection:
        connection.execute(text("ALTER TABLE payments DROP COLUMN reference"))
    site.app.register_error_handler(OperationalError, lambda error: ("the application's", 500))
    assert site.post().text == "the application's"
