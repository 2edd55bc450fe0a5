"""A database that is away, locked, or at odds: a clear error, and nothing half-settled."""

import logging
import sqlite3
import threading
from collections import Counter

import pytest
from flask import request
from helpers.payment_database import Payment, PaymentApp, pay, payments
from helpers.servers.faults import Proxy
from helpers.servers.processes import until
from sqlalchemy import event, select, text, update
from sqlalchemy.exc import OperationalError

from flask_idempotence import LeaseLost, StoreError, current_guard
from flask_idempotence.stores.base import Outcome
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


def at_once(number, act):
    """Have several threads act at the same moment; returns what came of it."""
    barrier, found = threading.Barrier(number), []

    def run(which):
        barrier.wait()
        found.append(act(which))

    threads = [threading.Thread(target=run, args=(which,)) for which in range(number)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


@pytest.mark.parametrize("number", [8, 16])
def test_duplicates_at_the_same_moment_pay_once(pay_app, number):
    site = pay_app(settings={"IDEMPOTENCE_LEASE": 30}, deadline=20)
    answers = at_once(number, lambda _: site.post(amount=7))
    assert site.amounts() == [7]
    kinds = Counter(each.status_code for each in answers)
    assert set(kinds) <= {201, 409}
    assert kinds[201] >= 1
    assert all(each.json == {"number": 1} for each in answers if each.status_code == 201)
    assert all(each.json["type"] == IN_PROGRESS for each in answers if each.status_code == 409)
    assert site.runs == 1


def test_those_that_wait_get_the_answer(pay_app):
    site = pay_app(wait=20, deadline=20)
    answers = at_once(8, lambda _: site.post(amount=7))
    assert [(each.status_code, each.json) for each in answers] == [(201, {"number": 1})] * 8
    assert (site.runs, site.amounts()) == (1, [7])


def test_different_keys_at_the_same_moment_are_all_paid(pay_app):
    site = pay_app(deadline=20, engine={"connect_args": {}})
    answers = at_once(8, lambda which: site.post(key=f"key-{which}", amount=which))
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


def test_sqlite_locked_before_the_claim_is_503_and_nothing_ran(locked, rival):
    rival.execute("BEGIN IMMEDIATE")
    answer = locked.post()
    assert (answer.status_code, answer.json["type"]) == (503, UNAVAILABLE)
    rival.execute("ROLLBACK")
    assert (locked.runs, locked.count()) == (0, 0)
    assert is_free(locked)


@pytest.mark.parametrize("early", [False, True])
def test_sqlite_locked_at_the_end_is_503_and_nothing_is_settled_by_half(locked, rival, early):
    def view(session):
        session.add(Payment(amount=3)) if early else session.scalars(select(payments.c.id)).all()
        rival.execute("BEGIN IMMEDIATE")
        return "paid", 201

    locked._view = view
    answer = locked.post()
    assert (answer.status_code, answer.json["type"]) == (503, UNAVAILABLE)
    rival.execute("ROLLBACK")
    assert locked.count() == 0
    assert until(lambda: is_free(locked), 10)  # the keeper has released it
    locked._view = None
    assert locked.post(amount=5).status_code == 201
    assert locked.amounts() == [5]


def test_sqlite_read_by_another_when_it_commits_is_503_and_rolled_back(file, locked, rival):
    def view(session):
        pay(session)
        rival.execute("BEGIN")
        rival.execute("SELECT * FROM payments").fetchall()  # in a journal, it keeps writers off
        return "paid", 201

    locked._view = view
    assert locked.post().status_code == 503
    rival.execute("ROLLBACK")
    assert locked.count() == 0
    assert until(lambda: is_free(locked), 10)


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


@pytest.mark.parametrize("is_handled", [False, True])
def test_a_refusal_in_place_of_the_commit_follows_the_settings(pay_app, monkeypatch, is_handled):
    handlers = {LeaseLost: lambda error: ("lost", error.code)} if is_handled else {}
    site = pay_app(settings={"IDEMPOTENCE_PROBLEM_BASE": "x:"}, handlers=handlers)
    monkeypatch.setattr(site.store, "complete_in", lambda *_: Outcome.STALE)
    answer = site.post()
    assert (answer.status_code, answer.headers["Retry-After"]) == (409, "1")
    assert answer.headers["Idempotence-Refusal"] == "lease-lost"
    assert is_handled or answer.json["type"] == "x:lease-lost"


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
        first = hold.lease.began_at
        assert until(lambda: hold.lease.began_at > first, 10)
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


def crossing(site, session, at):
    """Lock two rows, each of two requests in the other order, and so that they meet."""
    one, two = (1, 2) if at["key"] == "a" else (2, 1)
    session.execute(update(payments).where(payments.c.id == one).values(amount=10))
    at["barrier"].wait(timeout=20)
    session.execute(update(payments).where(payments.c.id == two).values(amount=10))
    return "done"


@pytest.mark.database
def test_a_deadlock_in_the_view_is_the_application_s_error_and_frees_the_key(server):
    site = PaymentApp(server, handlers={OperationalError: lambda error: ("try again", 503)})
    for amount in (1, 2):
        site.post(key=f"row-{amount}", amount=amount)
    barrier = threading.Barrier(2)
    site._view = lambda session: crossing(
        site, session, {"key": request.headers["Idempotency-Key"], "barrier": barrier}
    )
    answers = at_once(2, lambda which: site.post(key="ab"[which]))
    assert sorted(each.status_code for each in answers) == [200, 503]
    assert site.amounts() == [10, 10]
    assert len(list(site.store.scan(""))) == 3  # the loser's is free
    site.close()


@pytest.mark.database
def test_a_deadlock_in_the_guard_s_flush_is_503_and_frees_the_key(server):
    site = PaymentApp(server)
    for amount in (1, 2):
        site.post(key=f"row-{amount}", amount=amount)
    barrier = threading.Barrier(2)

    def view(session):
        first, second = (1, 2) if current_guard.key < max(keys(session)) else (2, 1)
        session.execute(update(payments).where(payments.c.id == first).values(amount=10))
        barrier.wait(timeout=20)
        session.get(Payment, second).amount = 10
        return "done"

    seen, both = [], threading.Barrier(2)

    def keys(session):
        seen.append(current_guard.key)
        both.wait(timeout=20)
        return seen

    site._view = view
    answers = at_once(2, lambda which: site.post(key="ab"[which]))
    assert sorted(each.status_code for each in answers) == [200, 503]
    (refused,) = [each for each in answers if each.status_code == 503]
    assert refused.json["type"] == UNAVAILABLE
    assert site.amounts() == [10, 10]
    assert len(list(site.store.scan(""))) == 3
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


@pytest.mark.database
@pytest.mark.parametrize(
    "when", ["look", "swallowed", "claim", "begin", "view", "caught", "flush"]
)
def test_a_database_that_goes_away_at_any_step_leaves_nothing(proxy, server, when):  # noqa: C901 - a branch a step
    here = PaymentApp(server)
    gone = {OperationalError: lambda error: ("gone", 500)}
    site = PaymentApp(through(proxy, server), prepare=False, handlers=gone)
    site.post(key="warm", amount=1)
    away = proxy.refuse
    store, view = site.store, None
    if when == "look":
        site.before = lambda: (site.session.execute(select(payments)).all(), away())
    elif when == "swallowed":
        site.before = lambda: (
            site.session.execute(select(payments)).all(),
            away(),
            caught(lambda: site.session.execute(select(payments))),
        )
    elif when == "claim":
        site.before = away
    elif when == "begin":
        real = store.claim
        store.claim = lambda *values: (real(*values), away())[0]
    elif when == "view":

        def view(session):
            pay(session)
            away()
            return str(pay(session))

    elif when == "caught":

        def view(session):
            pay(session)
            away()
            caught(lambda: pay(session))
            return "paid"

    else:

        def view(session):
            session.add(Payment(amount=3))
            away()
            return "paid"

    site._view = view
    answer = site.post()
    if when == "view":  # where the view finds out, it is the view's own error
        assert (answer.status_code, answer.text) == (500, "gone")
    else:
        assert (answer.status_code, answer.json["type"]) == (503, UNAVAILABLE)
    assert here.amounts() == [1]
    proxy.accept()
    site._view = site.before = None
    assert until(lambda: len(list(here.store.scan(""))) == 1, 20)
    assert here.post(amount=5).status_code == 201
    assert here.amounts() == [1, 5]
    site.close()
    here.close()
