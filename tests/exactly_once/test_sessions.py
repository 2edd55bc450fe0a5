"""Sessions of every kind within a guard: what they hold before it, in it and after it."""

import sqlite3
from contextlib import suppress

import pytest
from flask import abort, after_this_request, got_request_exception
from helpers.apps import KEY
from helpers.payment_database import Payment, is_clean, lose_claim, metadata, pay
from sqlalchemy import create_engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from flask_idempotence import ConfigurationError, current_guard, idempotent


def swallow(session):
    session.add(Payment(id=1))  # without its amount
    try:
        session.flush()
    except IntegrityError:
        return "done"


WAYS_OUT = {
    "a success": (lambda s: (str(pay(s)), 201), 201, 1, [3]),
    "a failed result": (lambda s: (str(pay(s)), 422), 422, 1, []),
    "a success that says no": (lambda s: pay(s) and {"success": False}, 200, 1, []),
    "an abort": (lambda s: pay(s) and abort(404), 404, 1, []),
    "a 500": (lambda s: (str(pay(s)), 500), 500, 2, []),
    "a 503": (lambda s: (str(pay(s)), 503), 503, 2, []),
    "a 409": (lambda s: (str(pay(s)), 409), 409, 2, []),
    "a 401": (lambda s: (str(pay(s)), 401), 401, 2, []),
    "an exception": (lambda s: pay(s) and 1 / 0, 500, 2, []),
    "an exception handled as a success": (lambda s: pay(s) and {}["none"], 200, 1, []),
    "a failure that is kept": (
        lambda s: (current_guard.keep(), str(pay(s)), 402)[1:],
        402,
        1,
        [3],
    ),
    "a success that is released": (
        lambda s: (current_guard.release(), str(pay(s)))[1],
        200,
        2,
        [],
    ),
    "nothing": (lambda s: pay(s) and None, 500, 2, []),
    "a commit": (lambda s: (pay(s), s.commit()), 500, 2, []),
    "a commit below": (lambda s: (pay(s), s.connection().commit(), "ok")[2], (500, 409), 1, [3]),
    "a commit in a savepoint": (lambda s: (s.begin_nested(), pay(s), s.commit()), 500, 2, []),
    "a rollback": (lambda s: (pay(s), s.rollback()), 500, 2, []),
    "a close": (lambda s: (pay(s), s.close(), "done")[2], 500, 2, []),
    "a close and more": (lambda s: (s.close(), str(pay(s)))[1], 500, 2, []),
    "a block of its own": (lambda s: s.begin().__enter__(), 500, 2, []),
    "a broken flush": (lambda s: s.add(Payment(id=1)) or "done", 500, 2, []),
    "a swallowed flush": (swallow, 500, 2, []),
    "a lost claim": (lambda s: (lose_claim(), str(pay(s)))[1], (409, 422), 1, []),
}
"""What the view does, the statuses of two requests, how often it runs, what is committed."""


@pytest.mark.parametrize("way", WAYS_OUT)
def test_a_way_out_decides_what_is_committed_and_remembered_and_leaves_the_session_clean(
    pay_app, way
):
    act, statuses, runs, amounts = WAYS_OUT[way]
    site = pay_app(handlers={KeyError: lambda error: ("all is well", 200)})
    app, client, acted = site.app, site.app.test_client(), []
    with Session(site.engine) as session:  # which lives on
        view = idempotent(within=lambda: session)(lambda: acted.append(1) or act(session))
        app.add_url_rule("/", "act", view, methods=["POST"])
        following = idempotent(within=session)(lambda: str(pay(session, 8)))
        app.add_url_rule("/next", "next", following, methods=["POST"])
        for status in statuses if isinstance(statuses, tuple) else (statuses, statuses):
            assert client.post("/", headers=KEY).status_code == status
            assert is_clean(session)
        assert (len(acted), site.amounts()) == (runs, amounts)
        assert client.post("/next", headers=KEY).status_code == 200
        assert is_clean(session)
        assert site.amounts() == [*amounts, 8]


@pytest.mark.parametrize(("how", "did"), [("commit", "committed"), ("rollback", "rolled it back")])
def test_the_line_that_ends_the_transaction_is_the_one_that_raises(pay_app, how, did):
    told = []

    def view(session):
        pay(session)
        with pytest.raises(ConfigurationError, match=did) as raised:
            getattr(session, how)()
        told.append(raised.value)
        return "no", 422

    site = pay_app(view)
    assert site.post().status_code == 422
    assert told
    assert site.count() == 0


WHERE = ["the view", "the value", "a callback of the view", "a decorator outside"]


@pytest.mark.parametrize("where", WHERE)
def test_an_error_handler_may_roll_back_and_write_of_its_own(pay_app, where):
    def view(session):
        pay(session)
        if where == "a callback of the view":
            after_this_request(lambda response: 1 / 0)
        if where == "the view":
            raise ZeroDivisionError
        return None if where == "the value" else "done"

    def handle(error):
        site.session.rollback()  # the usual line of an error handler
        pay(site.session, 7)
        site.session.commit()
        return "no funds", 422

    site = pay_app(view, handlers={500: handle, ZeroDivisionError: handle})
    if where == "a decorator outside":
        guarded = site.app.view_functions["pay"]
        site.app.view_functions["pay"] = lambda: guarded() and 1 / 0
    assert (site.post().status_code, site.amounts()) == (422, [7])
    if where == "the view":
        again = site.post()
        assert (again.status_code, again.headers["Idempotent-Replayed"]) == (422, "true")
        assert (site.amounts(), site.runs) == ([7], 1)


def test_a_view_may_report_an_exception_that_it_has_handled(pay_app):
    def view(session):
        pay(session)
        got_request_exception.send(site.app, exception=ValueError("handled"))
        return "done", 201

    site = pay_app(view)
    assert (site.post().status_code, site.amounts()) == (201, [3])


def test_a_second_attempt_in_one_request_commits_what_it_writes(pay_app):
    runs = []

    def view(session):
        runs.append(1)
        pay(session, len(runs))
        if len(runs) < 2:
            raise ValueError("a deadlock, say")
        return "done", 201

    def retried():
        with suppress(ValueError):
            return guarded()
        return guarded()

    site = pay_app(view)
    guarded = site.app.view_functions["pay"]
    site.app.view_functions["pay"] = retried
    assert (site.post().status_code, site.amounts()) == (201, [2])
    again = site.post()
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    assert (site.amounts(), len(runs)) == ([2], 2)


def test_a_view_that_has_returned_is_not_called_again_in_its_transaction(pay_app):
    """The writes of both runs would be committed, whether or not the first has failed."""
    runs = []

    def view(session):
        runs.append(1)
        pay(session, len(runs))
        return ("busy", 503) if len(runs) == 1 else ("done", 201)

    site = pay_app(view)
    guarded = site.app.view_functions["pay"]
    site.app.view_functions["pay"] = lambda: guarded() and guarded()
    site.app.config["PROPAGATE_EXCEPTIONS"] = False
    assert (site.post().status_code, site.amounts(), len(runs)) == (500, [], 1)
    site.app.view_functions["pay"] = guarded
    assert (site.post().status_code, site.amounts(), len(runs)) == (201, [2], 2)


def test_an_error_handler_and_a_hook_may_share_a_transaction(pay_app):
    def view(session):
        pay(session)
        raise ValueError("no funds")

    def handle(error):
        pay(site.session, 7)  # holds SQLite's lock until the hook commits
        return "no funds", 422

    site = pay_app(view, handlers={ValueError: handle})
    site.app.after_request(lambda response: site.session.commit() or response)
    answer = site.post()
    assert (answer.status_code, "Idempotent-Stored" in answer.headers) == (422, False)
    assert site.amounts() == [7]
    assert site.post().headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize(("status", "answer"), [(422, 422), (201, 500)])
def test_a_rollback_after_the_view_is_allowed_and_never_a_success(pay_app, status, answer):
    def view(session):
        pay(session)
        after_this_request(rolled_back)
        return "done", status

    def rolled_back(response):
        site.session.rollback()
        return response

    site = pay_app(view)
    assert (site.post().status_code, site.count()) == (answer, 0)


def test_an_exception_that_propagates_leaves_the_session_clean(pay_app):
    def view(session):
        pay(session)
        raise KeyError("mine")

    site = pay_app(view, settings={"TESTING": True, "PROPAGATE_EXCEPTIONS": True})
    with site.app.app_context(), pytest.raises(KeyError, match="mine"):
        site.post()
    assert site.count() == 0
    assert list(site.store.scan("")) == []


def test_sessions_of_other_databases_are_let_alone(tmp_path):
    class Sparse(sqlite3.Connection):
        def __getattribute__(self, name):
            if name == "total_changes":
                raise AttributeError(name)
            return super().__getattribute__(name)

    engine = create_engine(f"sqlite:///{tmp_path}/a.db", connect_args={"factory": Sparse})
    metadata.create_all(engine)
    with Session(engine) as session:
        pay(session)
        session.commit()
        assert not session.info
    engine.dispose()


def test_a_session_that_does_not_begin_by_itself_is_begun(pay_app):
    site = pay_app(sessions={"autobegin": False})
    assert site.post(amount=4).status_code == 201
    assert site.amounts() == [4]


def test_a_guard_that_cannot_begin_gives_its_claim_up(pay_app, monkeypatch):
    site = pay_app()
    monkeypatch.setattr(Session, "begin", lambda self: {}["cannot"])
    assert site.post().status_code == 500
    assert list(site.store.scan("")) == []
    monkeypatch.undo()
    assert site.post().status_code == 201
