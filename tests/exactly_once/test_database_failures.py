"""A database that is away, locked, or at odds: a clear error, and nothing half-settled."""

import logging
import sqlite3
import threading
from functools import partial

import pytest
from flask import request
from helpers.payment_database import Payment, PaymentApp, pay, payments
from helpers.servers.faults import Proxy
from helpers.servers.processes import all_at_once, until
from sqlalchemy import event, select, text, update
from sqlalchemy.exc import OperationalError

from flask_idempotence import StoreError, current_guard
from flask_idempotence.testing import record_signals

UNAVAILABLE = "urn:flask-idempotence:store-unavailable"
IN_PROGRESS = "urn:flask-idempotence:key-in-progress"
WRAPPED = OperationalError("BEGIN", {}, sqlite3.OperationalError("away"))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "books.db"


def is_free(site):
    try:
        return list(site.store.scan("")) == []
    except StoreError:  # the keeper is writing, on a machine that is slow
        return False


@pytest.mark.parametrize("wait", [0, 20])
def test_duplicates_at_the_same_moment_pay_once(pay_app, wait):
    site = pay_app(wait=wait, deadline=20, settings={"IDEMPOTENCE_LEASE": 30})
    answers = all_at_once([lambda: site.post(amount=7)] * 16)
    assert (site.amounts(), site.runs) == ([7], 1)
    paid = [each.json for each in answers if each.status_code == 201]
    assert paid == [{"number": 1}] * (16 if wait else len(paid))
    refused = [each.json["type"] for each in answers if each.status_code == 409]
    assert refused == [IN_PROGRESS] * (16 - len(paid))
    assert paid


def test_different_keys_at_the_same_moment_are_all_paid(pay_app):
    site = pay_app(deadline=20, engine={"connect_args": {}})
    answers = all_at_once([partial(site.post, key=f"key-{n}", amount=n) for n in range(8)])
    assert [each.status_code for each in answers] == [201] * 8
    assert sorted(site.amounts()) == list(range(8))


@pytest.fixture
def rival(file):
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    yield connection
    connection.close()


@pytest.fixture
def locked(file, rival):
    """A site on SQLite whose rival is about to lock the file."""
    site = PaymentApp(f"sqlite:///{file}", deadline=0.3, engine={"connect_args": {"timeout": 0.2}})
    yield site
    site.close()


def reads(session):
    session.scalars(select(payments.c.id)).all()


LOCKS = {
    "before the claim": None,
    "after a read": (reads, "BEGIN IMMEDIATE"),
    "before a flush": (lambda session: session.add(Payment(amount=3)), "BEGIN IMMEDIATE"),
    "by a reader at the commit": (pay, "BEGIN"),  # in a journal, it keeps writers off
}


@pytest.mark.parametrize("when", LOCKS)
def test_sqlite_locked_by_another_is_503_and_nothing_is_settled_by_half(locked, rival, when):
    def lock(begin):
        rival.execute(begin)
        rival.execute("SELECT * FROM payments").fetchall()

    def view(session):
        act, begin = LOCKS[when]
        act(session)
        lock(begin)
        return "paid", 201

    locked._view = view
    if LOCKS[when] is None:
        lock("BEGIN IMMEDIATE")
    answer = locked.post()
    assert (answer.status_code, answer.json["type"]) == (503, UNAVAILABLE)
    assert locked.runs == (0 if LOCKS[when] is None else 1)
    rival.execute("ROLLBACK")
    assert locked.count() == 0
    assert until(lambda: is_free(locked), 10)  # the keeper has released it
    locked._view = None
    assert locked.post(amount=5).status_code == 201
    assert locked.amounts() == [5]


@pytest.mark.parametrize("statement", ["DROP TABLE {}", "ALTER TABLE {} DROP COLUMN fingerprint"])
def test_a_table_that_is_missing_or_old_is_503_and_the_log_says_what_to_do(
    pay_app, caplog, statement
):
    site = pay_app()
    with site.engine.begin() as connection:
        connection.execute(text(statement.format("flask_idempotence")))
    with caplog.at_level(logging.WARNING, "flask_idempotence"):
        assert site.post().json["type"] == UNAVAILABLE
    assert "flask idempotence init-db" in caplog.text
    assert (site.runs, site.count()) == (0, 0)


def test_a_table_that_goes_away_in_mid_view_is_503_and_rolled_back(pay_app, caplog):
    def view(session):
        with site.engine.begin() as connection:
            connection.execute(text("ALTER TABLE flask_idempotence RENAME TO moved"))
        return str(pay(session)), 201

    site = pay_app(view)
    with caplog.at_level(logging.WARNING, "flask_idempotence"):
        assert site.post().json["type"] == UNAVAILABLE
    assert "flask idempotence init-db" in caplog.text
    assert (site.runs, site.count()) == (1, 0)
    with site.engine.begin() as connection:
        connection.execute(text("ALTER TABLE moved RENAME TO flask_idempotence"))
    assert until(lambda: is_free(site), 10)


@pytest.mark.parametrize(
    ("toggle", "error"), [(True, WRAPPED), (False, WRAPPED), (True, WRAPPED.orig)]
)
def test_a_database_that_cannot_be_begun_on_is_503_with_a_time_to_wait(pay_app, toggle, error):
    site = pay_app(settings={"IDEMPOTENCE_KEY_ENABLED": toggle, "IDEMPOTENCE_PROBLEM_BASE": "x:"})

    @event.listens_for(site.engine, "begin")
    def fail(connection):
        raise error

    with record_signals(site.app) as signals:
        answer = site.post()
    event.remove(site.engine, "begin", fail)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.json["type"] == "x:store-unavailable"
    assert (site.runs, site.count()) == (0, 0)
    assert is_free(site)
    assert signals.names.count("rejected") == 1
    assert site.post().status_code == 201


def test_after_a_commit_whose_end_nobody_knows_nothing_is_released(pay_app, monkeypatch):
    def lose_claim(*_):
        raise StoreError("away", sent=True)

    def cut_off():
        broken = OperationalError("COMMIT", {}, sqlite3.OperationalError("away"))
        broken.connection_invalidated = True
        monkeypatch.setattr(site.store, "look_up", lose_claim)
        raise broken

    site = pay_app(lambda session: (setattr(session(), "commit", cut_off), str(pay(session)))[1])
    with record_signals(site.app) as signals:
        assert site.post().json["type"] == UNAVAILABLE
    assert "released" not in signals.names
    (key,) = site.store.scan("")
    assert site.store.peek(key).kind == "claim"


def test_the_lease_is_renewed_while_the_transaction_is_open(pay_app):
    site = pay_app(settings={"IDEMPOTENCE_LEASE": 0.9})
    renewed = threading.Event()

    def view(session):
        session.scalars(select(payments.c.id)).all()
        hold = current_guard._claim
        first = hold.leased_at
        assert until(lambda: hold.leased_at > first, 10)
        renewed.set()
        return site.pay(session)

    site._view = view
    assert site.post().status_code == 201
    assert renewed.is_set()
    assert site.amounts() == [1]


# PostgreSQL alone


@pytest.fixture
def server(postgres):
    return postgres.new_database()


@pytest.mark.database
@pytest.mark.parametrize("level", ["SERIALIZABLE", "REPEATABLE READ", "AUTOCOMMIT"])
def test_the_transaction_is_read_committed_whatever_the_engine_says(server, level):
    site = PaymentApp(server, engine={"isolation_level": level})
    levels = []

    def view(session):
        levels.append(session.scalar(text("SHOW transaction_isolation")))
        current_guard.ensure_held()  # the claim's row changes beside the transaction
        return site.pay(session)

    site._view = view
    site.before = lambda: site.session.execute(select(payments)).all()
    assert [site.post(amount=4).status_code for _ in range(2)] == [201, 201]
    assert levels == ["read committed"]
    assert site.amounts() == [4]
    if level != "AUTOCOMMIT":  # and the next one who takes the connection has the engine's own
        with site.engine.connect() as connection:
            shown = connection.scalar(text("SHOW transaction_isolation"))
        assert shown == level.lower()
    site.close()


@pytest.mark.database
@pytest.mark.parametrize("where", ["the view", "the guard's flush"])
def test_a_deadlock_frees_the_key_and_is_the_view_s_error_or_503(server, where):
    site = PaymentApp(server, handlers={OperationalError: lambda error: ("the view's", 503)})
    for amount in (1, 2):
        site.post(key=f"row-{amount}", amount=amount)
    barrier = threading.Barrier(2)

    def view(session):
        """Lock two rows, each of two requests in the other order, and so that they meet."""
        one, two = (1, 2) if request.headers["Idempotency-Key"] == "a" else (2, 1)
        session.execute(update(payments).where(payments.c.id == one).values(amount=10))
        barrier.wait(timeout=20)
        session.get(Payment, two).amount = 10
        if where == "the view":
            session.flush()
        return "done"

    site._view = view
    answers = all_at_once([partial(site.post, key=key) for key in "ab"])
    paid, refused = sorted(answers, key=lambda each: each.status_code)
    assert (paid.status_code, refused.status_code) == (200, 503)
    assert ("the view's" if where == "the view" else UNAVAILABLE) in refused.text
    assert site.amounts() == [10, 10]
    assert len(list(site.store.scan(""))) == 3  # the loser's is free
    site.close()


@pytest.fixture
def proxy(postgres):
    with Proxy(postgres) as proxy:
        yield proxy


def through(proxy, url):
    return url.rpartition("@")[0] + f"@127.0.0.1:{proxy.port}/" + url.rpartition("/")[2]


def caught(act):
    with pytest.raises(OperationalError):
        act()


def look(site):
    site.session.execute(select(payments)).all()


BEFORE = {
    "look": lambda site, away: (look(site), away()),
    "swallowed": lambda site, away: (look(site), away(), caught(lambda: look(site))),
    "claim": lambda site, away: away(),
}
IN_VIEW = {
    "view": lambda session, away: (pay(session), away(), pay(session)),
    "caught": lambda session, away: (pay(session), away(), caught(lambda: pay(session))),
    "flush": lambda session, away: (session.add(Payment(amount=3)), away()),
}


@pytest.mark.database
@pytest.mark.parametrize("when", [*BEFORE, "begin", *IN_VIEW])
def test_a_database_that_goes_away_at_any_step_leaves_nothing(proxy, server, when):
    here = PaymentApp(server)
    gone = {OperationalError: lambda error: ("gone", 500)}
    site = PaymentApp(through(proxy, server), prepare=False, handlers=gone)
    site.post(key="warm", amount=1)
    away, claim = proxy.refuse, site.store.claim
    if when in BEFORE:
        site.before = lambda: BEFORE[when](site, away)
    elif when == "begin":
        site.store.claim = lambda *values: (claim(*values), away())[0]
    else:
        site._view = lambda session: (IN_VIEW[when](session, away), "paid")[1]
    answer = site.post()
    if when == "view":  # where the view finds out, it is the view's own error
        assert (answer.status_code, answer.text) == (500, "gone")
    else:
        assert (answer.status_code, answer.json["type"]) == (503, UNAVAILABLE)
        assert answer.headers["Retry-After"] == "1"
    assert here.amounts() == [1]
    proxy.accept()
    site._view = site.before = None
    assert until(lambda: len(list(here.store.scan(""))) == 1, 20)
    assert here.post(amount=5).status_code == 201
    assert here.amounts() == [1, 5]
    site.close()
    here.close()
