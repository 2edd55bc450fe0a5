"""Exactly once: what the view writes and what is remembered of it, in one transaction."""

import os
from contextlib import contextmanager

import pytest
from helpers.payment_database import Payment, PaymentApp, pay
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import IntegrityError


def test_a_payment_and_its_answer_are_committed_together(pay_app):
    site = pay_app()
    first = site.post(amount=7)
    assert (first.status_code, first.json) == (201, {"number": 1})
    assert site.amounts() == [7]
    again = site.post(amount=7)
    assert (again.status_code, again.json) == (201, {"number": 1})
    assert again.headers["Idempotent-Replayed"] == "true"
    assert site.post(amount=8).status_code == 422  # another body
    assert (site.runs, site.amounts()) == (1, [7])


UNGUARDED = [(None, {}), ("one", {"KEY_ENABLED": False}), ("one", {"ENABLED": False})]


@pytest.mark.parametrize(("key", "settings"), UNGUARDED)
def test_without_a_key_or_switched_off_the_guard_commits_or_rolls_back(pay_app, key, settings):
    settings = {f"IDEMPOTENCE_{name}": value for name, value in settings.items()}
    site = pay_app(settings=settings)
    assert [site.post(key, amount=4).status_code for _ in range(2)] == [201, 201]
    site._view = lambda session: (str(pay(session)), 400)
    assert site.post(key).status_code == 400
    assert site.amounts() == [4, 4]
    assert list(site.store.scan("")) == []


def constraint_lines(caplog):
    return [line for line in caplog.messages if "constraint of the database" in line]


HANDLERS = {
    "no handler": ({}, 500, "Internal Server Error"),
    "a handler for all": ({Exception: lambda error: ("no", 500)}, 500, "no"),
    "a handler of its own": ({IntegrityError: lambda error: ("taken", 409)}, 409, "taken"),
}


@pytest.mark.parametrize("flushes", [True, False], ids=["in the view", "at the commit"])
@pytest.mark.parametrize("handler", HANDLERS)
def test_a_duplicate_that_ends_in_a_500_is_logged_with_the_cure(pay_app, caplog, flushes, handler):
    def view(session):
        session.add(Payment(amount=1, reference="A"))
        if flushes:
            session.flush()
        return "paid", 201

    handlers, status, told = HANDLERS[handler]
    site = pay_app(view, handlers=handlers)
    assert site.post(key="one").status_code == 201
    assert constraint_lines(caplog) == []
    for _ in range(2):  # it is given free
        answer = site.post(key="two")
        assert (answer.status_code, told in answer.text) == (status, True)
    lines = constraint_lines(caplog)
    assert len(lines) == (2 if status == 500 else 0)
    cure = "session.begin_nested(), catch IntegrityError around it, and answer 409"
    assert all(cure in line for line in lines)
    assert (site.runs, site.count()) == (3, 1)


def test_a_stream_is_committed_before_it_begins(pay_app):
    def view(session):
        site.pay(session)
        return (part for part in ["a", "b"])

    site = pay_app(view)
    assert site.post().text == "ab"
    assert site.count() == 1
    assert site.post().json["type"] == "urn:flask-idempotence:response-not-stored"
    assert site.runs == 1


@contextmanager
def statements():
    """Note every statement that any engine sends."""
    seen = []

    def note(connection, cursor, statement, *more):
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


def test_the_guarded_view_costs_three_statements_more_at_most_and_a_savepoint(pay_app, url):
    on_mysql = url.startswith("mysql")
    site = pay_app(engine={"isolation_level": "READ COMMITTED"} if on_mysql else {})
    site.post(key="warm")
    with statements() as seen:
        site.post(key="two")
    # On SQLite it is set by the driver, right before the first write.
    around = [each for each in seen if each.startswith(("SAVEPOINT", "RELEASE"))]
    around += [each for each in seen if each == "-- deferred"]
    assert len(around) == 2
    own = [each for each in seen if "flask_idempotence" in each and each not in around]
    assert 2 <= len(own) <= 3
    assert len(seen) == len(around) + len(own) + 1


@pytest.mark.database
def test_on_postgresql_reading_first_costs_one_look_more(postgres):
    site = PaymentApp(postgres.new_database())
    site.post(key="warm")
    site.before = lambda: site.session.execute(text("SELECT 1"))
    with statements() as seen:
        assert site.post().status_code == 201
    looks = [each for each in seen if "txid_current_if_assigned" in each]
    assert len(looks) == 1
    # The application's two, the claim, the look, the completion, and the savepoint's two.
    assert len(seen) == 7
    site.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads, and forks
@pytest.mark.parametrize("way_out", [SystemExit, ValueError])
def test_a_forked_child_does_not_roll_back_what_its_parent_writes(pay_app, way_out):
    """It would do so on the parent's connection."""
    rollbacks, parent = [], os.getpid()

    def view(session):
        event.listen(session(), "after_rollback", rollbacks.append)
        answer = site.pay(session)
        if (child := os.fork()) == 0:
            raise way_out
        assert os.waitpid(child, 0)[1] == 0
        return answer

    def outermost():
        try:
            return guarded()
        finally:
            if os.getpid() != parent:
                os._exit(len(rollbacks))

    site = pay_app(view)
    guarded = site.app.view_functions["pay"]
    site.app.view_functions["pay"] = outermost
    assert site.post().status_code == 201
    assert site.amounts() == [1]
