"""Commits below the session: noticed when the guard settles, and the view never runs again."""

import logging
from contextlib import suppress

import pytest
from helpers.payment_database import PaymentApp, errors_as_text, pay
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from flask_idempotence import OutcomeUnknown, current_guard

# Of SQLAlchemy, about a connection whose transaction was committed behind its session.
pytestmark = pytest.mark.filterwarnings("ignore:.*already deassociated")

UNKNOWN = "urn:flask-idempotence:outcome-unknown"


def driver_of(session):
    return session.connection().connection.dbapi_connection


def by_its_cursor(session):
    cursor = driver_of(session).cursor()
    cursor.execute("INSERT INTO payments (amount) VALUES (3)")
    cursor.close()
    driver_of(session).commit()


COMMITS = {
    "the connection": lambda session: (pay(session), session.connection().commit()),
    "the driver": lambda session: (pay(session), driver_of(session).commit()),
    "a text": lambda session: (pay(session), session.execute(text("COMMIT"))),
    "a text in small letters": lambda session: (
        pay(session),
        session.connection().exec_driver_sql(" /* now */ commit"),
    ),
    "the driver's own cursor": by_its_cursor,
}
ENDINGS = {
    "a success": lambda session: "paid",
    "a success, with more writes": lambda session: str(pay(session)),
    "a failed result": lambda session: ("no", 422),
    "a transient result": lambda session: ("no", 503),
    "an exception": lambda session: {}["none"],
    "an exception, with more writes": lambda session: pay(session) and {}["none"],
    "a refused statement": lambda session: pay(session, None),
    "a rollback": lambda session: session.rollback(),
    "a release": lambda session: (current_guard.release(), "paid")[1],
}


def assert_stays_unknown(site, caplog, paid=1):
    with caplog.at_level(logging.ERROR, "flask_idempotence"):
        site.post()
    said = [each for each in caplog.messages if "committed below its session" in each]
    assert len(said) == 1
    assert "Leave the commit to the guard" in said[0]
    answers = [site.post() for _ in range(2)]
    assert [each.json["type"] for each in answers] == [UNKNOWN] * 2
    assert [each.status_code for each in answers] == [409] * 2
    assert (site.runs, site.count()) == (1, paid)
    site._view = None
    assert site.post("another").status_code == 201
    assert site.count() == paid + 1


@pytest.mark.parametrize("reads_before", [False, True])
@pytest.mark.parametrize("way", COMMITS)
@pytest.mark.parametrize("end", ["a success, with more writes", "an exception"])
def test_every_way_to_commit_is_noticed(pay_app, caplog, way, end, reads_before):
    site = pay_app(lambda session: (COMMITS[way](session), ENDINGS[end](session))[1])
    if reads_before:
        site.before = lambda: site.session.execute(text("SELECT 1"))
    assert_stays_unknown(site, caplog)


ROLLBACKS = {
    "the connection": lambda session: session.connection().rollback(),
    "the end of the connection": lambda session: session.connection().close(),
    "the driver": lambda session: driver_of(session).rollback(),
    "a text": lambda session: session.execute(text("ROLLBACK")),
}


@pytest.mark.parametrize("way", ROLLBACKS)
def test_a_rollback_below_the_session_counts_as_a_commit(pay_app, caplog, way):
    site = pay_app(lambda session: (pay(session), ROLLBACKS[way](session), "paid")[2])
    assert_stays_unknown(site, caplog, paid=0)


@pytest.mark.parametrize("end", ENDINGS)
def test_it_is_noticed_however_the_view_ends(pay_app, caplog, end):
    site = pay_app(lambda session: (COMMITS["a text"](session), ENDINGS[end](session))[1])
    assert_stays_unknown(site, caplog)


@pytest.mark.parametrize("key", ["one", None])
def test_the_answer_names_the_remedy_where_the_view_had_none_of_its_own(pay_app, key):
    site = errors_as_text(pay_app(lambda session: (COMMITS["the driver"](session), "paid")[1]))
    answer = site.post(key)
    assert (answer.status_code, "Leave the commit to the guard" in answer.text) == (500, True)


def test_a_block_of_once_is_not_entered_again(pay_app, caplog):
    site = pay_app()
    session = site.session
    with site.app.app_context():
        with suppress(KeyError), site.idempotence.once("books", 1, within=session):
            pay(session)
            session.connection().commit()
            raise KeyError
        for _ in range(2):
            with (
                pytest.raises(OutcomeUnknown, match="forget"),
                site.idempotence.once("books", 1, within=session),
            ):
                raise AssertionError
        site.idempotence.forget("books", 1)
        with site.idempotence.once("books", 1, within=session) as once:
            assert once.first
            pay(session)
    assert site.count() == 2


def test_a_view_that_is_ended_after_such_a_commit_does_not_run_again(pay_app, caplog):
    class TimeOut(BaseException):
        pass

    def view(session):
        COMMITS["the driver"](session)
        raise TimeOut

    site = pay_app(view)
    with pytest.raises(TimeOut):
        site.post()
    assert [site.post().json["type"] for _ in range(2)] == [UNKNOWN] * 2
    assert (site.runs, site.count()) == (1, 1)


def test_a_rollback_to_a_savepoint_of_a_known_name_undoes_nothing(pay_app):
    def view(session):
        pay(session)
        for name in ("flask_idempotence_begin", "sa_savepoint_1", "sa_savepoint_2"):
            with pytest.raises(SQLAlchemyError), session.begin_nested():
                session.execute(text(f"ROLLBACK TO SAVEPOINT {name}"))
        return "paid", 201

    site = pay_app(view)
    site.before = lambda: site.session.execute(text("SELECT 1"))
    assert [site.post().status_code for _ in range(2)] == [201, 201]
    assert (site.runs, site.count()) == (1, 1)


COMMITTING = [
    (pay, "CREATE TABLE another (id INT)"),
    (pay, "SET autocommit = 1"),
    (pay, "START TRANSACTION"),
    (pay, "LOCK TABLES payments WRITE"),
    (None, "CREATE TABLE another (id INT)"),
]


@pytest.mark.database
@pytest.mark.parametrize(("write", "statement"), COMMITTING)
def test_a_statement_that_commits_on_mariadb_is_noticed(mariadb, caplog, write, statement):
    def view(session):
        if write:
            write(session)
        session.execute(text(statement))
        session.execute(text("UNLOCK TABLES"))
        return "paid"

    site = PaymentApp(mariadb.new_database(), view)
    assert_stays_unknown(site, caplog, paid=1 if write else 0)
    site.close()
