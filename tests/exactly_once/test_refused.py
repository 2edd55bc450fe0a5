"""What a guard within a session refuses to begin or to commit, and how it says so."""

import subprocess
import sys
from contextlib import closing, suppress

import pytest
from flask import got_request_exception
from helpers.apps import no_answer
from helpers.payment_database import Payment, PaymentApp, errors_as_text, metadata, pay, payments
from sqlalchemy import create_engine, event, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from flask_idempotence import ConfigurationError, StoreUnavailable
from flask_idempotence.exactly_once.database import may_write


@pytest.mark.parametrize("options", [{}, {"isolation_level": "AUTOCOMMIT"}])
@pytest.mark.parametrize("savepoint", [False, True])
def test_what_is_rolled_back_leaves_nothing_however_the_engine_begins(pay_app, options, savepoint):
    def view(session):
        if savepoint:
            with session.begin_nested():
                pay(session)
            session.begin_nested().rollback()
        else:
            pay(session)
        return "no", 422

    site = pay_app(view, engine=options)
    assert site.post().status_code == 422
    assert site.count() == 0
    site._view = lambda session: (view(session), "yes")[1]
    assert site.post("two").status_code == 200
    assert site.count() == 1


def test_an_engine_that_begins_by_an_event_is_taken_as_it_is(tmp_path):
    site = PaymentApp(f"sqlite:///{tmp_path}/books.db")
    event.listen(site.engine, "connect", lambda made, _: setattr(made, "isolation_level", None))
    event.listen(site.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    site.engine.dispose()
    site.before = lambda: site.session.execute(select(payments)).all()
    assert site.post(amount=4).status_code == 201  # the first, too: it has only read
    site.before = lambda: pay(site.session)
    assert site.post("two").status_code == 500
    assert site.amounts() == [4]
    site.close()


def released(session):
    with session.begin_nested():
        pay(session)


WRITES_BEFORE = {
    "an object": lambda session: session.add(Payment(amount=1)),
    "a flushed object": lambda session: (session.add(Payment(amount=1)), session.flush()),
    "a statement": pay,
    "a text": lambda session: session.execute(text("INSERT INTO payments (amount) VALUES (1)")),
    "a savepoint": lambda session: [pay(session) for _ in [session.begin_nested()]],
    "a savepoint released": released,
    "something, then a savepoint": lambda session: (pay(session), session.begin_nested()),
}


@pytest.mark.parametrize("what", WRITES_BEFORE)
def test_a_session_already_written_to_is_refused(pay_app, what):
    site = errors_as_text(pay_app())
    session = site.session
    for warm in (True, False):
        site.before = None if warm else lambda: WRITES_BEFORE[what](session())
        answer = site.post(key=str(warm))
        assert answer.status_code == (201 if warm else 500)
    assert "from before its guard" in answer.text
    assert site.runs == 1
    assert len(list(site.store.scan(""))) == 1


def test_a_release_of_the_registry_s_session_in_the_view_is_told(pay_app):
    site = errors_as_text(
        pay_app(lambda session: (pay(session), session.remove(), session() and "done")[2])
    )
    assert "must not have ended" in site.post().text
    assert site.count() == 0
    assert list(site.store.scan("")) == []


@pytest.mark.parametrize("key", ["one", None])
def test_a_view_that_goes_on_after_a_refusal_of_postgresql_is_told(postgres, key):
    def view(session):
        pay(session)
        try:
            session.execute(text("INSERT INTO payments (amount) VALUES (NULL)"))
        except IntegrityError:
            return "done", 201

    site = errors_as_text(PaymentApp(postgres.new_database(), view))
    answer = site.post(key)
    assert answer.status_code == 500
    assert "had refused" in answer.text
    assert site.count() == 0
    assert list(site.store.scan("")) == []
    site.close()


@pytest.fixture
def two(pay_app, tmp_path):
    """A site whose sessions write payments to one database, and orders to another."""
    orders = payments.to_metadata(type(metadata)(), name="orders")
    other = create_engine(f"sqlite:///{tmp_path}/other.db")
    orders.create(other)
    site = errors_as_text(pay_app(sessions={"binds": {orders: other}}))
    site.orders, site.other = orders, other
    yield site
    site.session.remove()
    other.dispose()


def orders_of(site):
    with site.other.connect() as connection:
        return connection.scalar(select(func.count()).select_from(site.orders))


def test_another_database_may_be_read_and_writing_to_it_is_rolled_back(two):
    def view(session):
        session.scalars(select(two.orders.c.id)).all()
        pay(session)
        if two.runs > 1:
            session.execute(insert(two.orders).values(amount=1))
        return "done"

    two._view = view
    two.before = lambda: two.session.scalars(select(two.orders.c.id)).all()
    assert two.post().status_code == 200
    assert "another database" in two.post("two").text
    assert (two.amounts(), orders_of(two), len(list(two.store.scan("")))) == ([3], 0, 1)


def test_having_written_to_another_database_before_is_refused(two):
    two.before = lambda: two.session.execute(insert(two.orders).values(amount=1))
    assert "from before its guard" in two.post().text
    assert two.runs == 0


FIRST_USE = """
import sys
from contextlib import closing, suppress
from flask import Flask
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from flask_idempotence import ConfigurationError, Idempotence, SqlStore

engine = create_engine(sys.argv[1])
app = Flask("shop")
app.config["SECRET_KEY"] = "a secret"
store = SqlStore(engine)
store.create_table()
idempotence = Idempotence(app, store=store)
with app.app_context(), Session(engine) as session:
    session.execute(text("CREATE TABLE books (number INTEGER)"))
    session.execute(text("INSERT INTO books VALUES (1)"))
    try:
        with idempotence.once("books", 1, within=session):
            raise SystemExit("begun")
    except ConfigurationError:
        print("refused", session.scalar(text("SELECT COUNT(*) FROM books")))
"""


def test_the_first_use_in_a_process_sees_what_its_session_has_written_before(url):
    command = [sys.executable, "-c", FIRST_USE, url]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("refused 1\n", "")


def refuse(*_):
    raise ConfigurationError("the remedy")


@pytest.mark.parametrize("testing", [False, True])
@pytest.mark.parametrize("has_remedy", [False, True])
def test_a_refused_commit_is_reported_with_its_cause(tmp_path, monkeypatch, testing, has_remedy):
    """For the log or the test, and for a receiver."""
    site = PaymentApp(f"sqlite:///{tmp_path}/books.db")
    site._view = lambda session: (session.add(Payment(amount=None)), "paid")[1]
    if has_remedy:
        event.listen(site.session, "before_flush", refuse)
    site.app.testing = testing
    found = []
    monkeypatch.setattr(site.app, "log_exception", lambda *given: found.append(given[-1][1]))

    def receive(_, exception):
        found.append(exception)

    with got_request_exception.connected_to(receive, site.app):
        try:
            assert site.post().status_code == 500
        except (IntegrityError, ConfigurationError) as error:
            found.append(error)
    assert [type(error) for error in found] == [
        ConfigurationError if has_remedy else IntegrityError
    ] * 2
    site.close()


def test_after_a_refused_commit_any_error_of_the_store_leaves_it_refused(pay_app, monkeypatch):
    def broken(*_):
        raise ConnectionResetError

    site = pay_app()
    monkeypatch.setattr(site.store, "complete_in", no_answer)
    monkeypatch.setattr(site.store, "release", broken)  # the claim cannot be freed
    assert site.post().status_code == 503
    block = site.idempotence.once("jobs", 1, within=site.session)
    with site.app.app_context(), pytest.raises(StoreUnavailable), block:
        pay(site.session)
    assert site.count() == 0


# By statements that may write it is known whether a session has, where a database does not tell

READS = [
    *("SELECT 1", "  select * from payments where amount = 'update'", "/* trace=1 */ SELECT 1"),
    *("(SELECT 1) UNION (SELECT 2)", "WITH a AS (SELECT 1) SELECT * FROM a", "SHOW WARNINGS"),
    *("SET TRANSACTION READ WRITE", "SAVEPOINT sa_savepoint_1"),
    *("RELEASE SAVEPOINT sa_savepoint_1", "ROLLBACK TO SAVEPOINT sa_savepoint_1"),
]
MAY_WRITE = [
    *("INSERT INTO payments (amount) VALUES (1)", "/* SELECT */ UPDATE payments SET amount = 1"),
    *("WITH a AS (SELECT 1) DELETE FROM payments", "SELECT * FROM payments FOR UPDATE"),
    *("SELECT *\nFROM payments\nFOR  SHARE SKIP LOCKED", "CALL pay()", "ROLLBACK", "BEGIN", ""),
    *("SELECT * FROM payments LOCK IN SHARE MODE", "REPLACE INTO payments VALUES (1)", "SELECTED"),
]


@pytest.mark.parametrize("statement", READS + MAY_WRITE)
def test_a_statement_may_write_unless_it_is_known_to_read(statement):
    assert may_write(statement) is (statement in MAY_WRITE)


BEFORE_ITS_END = {
    "nothing": lambda session: None,
    "a read": lambda session: session.execute(select(payments)).all(),
    "an object": lambda session: session.add(Payment(amount=3)),
    "an object that is refused": lambda session: session.add(Payment(id=1)),
    "a statement": pay,
    "a savepoint": lambda session: (session.begin_nested(), pay(session)),
}
ENDS = {
    **{name: [name] for name in ("remove", "close", "rollback", "reset", "invalidate", "commit")},
    "remove, twice": ["remove", "remove"],
    "rollback, remove": ["rollback", "remove"],
}
AFTERWARDS = {
    "a success": lambda session: ("paid", 201),
    "a read": lambda session: (session.execute(select(payments)).all(), ("paid", 201))[1],
    "a failed result": lambda session: ("no", 422),
    "a transient result": lambda session: ("no", 503),
    "an exception": lambda session: {}["none"],
}


def ended(site, before, end, afterwards):
    """Send a request whose view swallows each error of ending its session, and the same again.

    Return both statuses, whether the second one is a replay, and how many payments were made.
    """

    def view(session):
        with suppress(Exception):
            BEFORE_ITS_END[before](session)
        for method in ENDS[end]:
            with suppress(Exception):
                getattr(session, method)()
        return AFTERWARDS[afterwards](session)

    count, key = site.count(), f"{before}-{end}-{afterwards}".replace(",", "")
    site._view = view
    first = site.post(key)
    wrote = site.count() - count
    site._view = lambda session: ("once more", 201)
    again = site.post(key)
    is_replay = again.headers.get("Idempotent-Replayed") == "true"
    return first.status_code, again.status_code, is_replay, wrote


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"autoflush": False}, marks=pytest.mark.deep)], ids=str
)
@pytest.mark.parametrize("end", ENDS)
def test_a_swallowed_refusal_of_the_sessions_end_never_leaves_the_outcome_unknown(
    tmp_path, end, options
):
    """Nothing is written and the key is free; or the answer is remembered with its writes."""
    with closing(PaymentApp(f"sqlite:///{tmp_path}/books.db", sessions=options)) as site:
        found = {
            (before, afterwards): ended(site, before, end, afterwards)
            for before in BEFORE_ITS_END
            for afterwards in AFTERWARDS
        }
    assert {
        case: (first, again, is_replay, wrote)
        for case, (first, again, is_replay, wrote) in found.items()
        if not (is_replay and again == first and (wrote == 0 or first == 201))
        and not (again == 201 and wrote == 0 and first >= 500)
    } == {}


def test_rows_that_are_locked_before_the_guard_are_named(postgres):
    with closing(PaymentApp(postgres.new_database())) as site:
        errors_as_text(site)
        assert site.post("one").status_code == 201
        locked = select(Payment).with_for_update()
        site.before = lambda: site.session.scalars(locked).all()
        assert "row locks (SELECT ... FOR UPDATE) from before its guard" in site.post("two").text
        assert site.count() == 1
