"""A guard within a session among others: other guards, other hooks, other rules."""

import subprocess
import sys
from contextlib import nullcontext

import pytest
from helpers.apps import KEY
from helpers.payment_database import Payment, PaymentApp, errors_as_text, pay, payments
from sqlalchemy import create_engine, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from flask_idempotence import MemoryStore, Refusal, SqlStore, idempotent, no_repeat_submit
from flask_idempotence.signals import completed, released


def test_a_refusal_within_is_no_result_under_any_status(pay_app):
    site = pay_app(deadline=0.5)  # on SQLite it passes: the view is writing
    site.app.register_error_handler(Refusal, lambda error: ("later", 200))

    def view(session):
        with site.idempotence.once("inner", 1):
            return str(pay(session))

    site._view = view
    with site.app.app_context(), site.idempotence.once("inner", 1):
        assert site.post().text == "later"
    assert site.count() == 0
    with site.app.app_context():
        assert site.idempotence.forget("inner", 1)
    assert (site.post().status_code, site.count()) == (200, 1)


def test_a_lock_of_the_route_ends_after_the_commit_and_a_named_one_in_the_view_before(pay_app):
    site, counts = pay_app(), {}
    is_sqlite = site.engine.dialect.name == "sqlite"  # whose one writer is the view

    @site.app.post("/locked")
    @no_repeat_submit(0, key=lambda: "books", shared=True)
    @idempotent(within=site.session)
    def locked():
        with nullcontext() if is_sqlite else site.idempotence.lock("books"):
            return str(pay(site.session)), 201

    def note(app, *, mode, **_):
        counts[mode] = site.count()

    with completed.connected_to(note), released.connected_to(note):
        assert site.app.test_client().post("/locked", headers=KEY).status_code == 201
    assert counts.pop("mutex", 0) == 0
    assert counts == {"key": 1, "lock": 1}


def test_two_guards_within_one_session_are_refused(pay_app):
    site = errors_as_text(pay_app())
    inner = site.idempotence

    def view(session):
        with inner.once("inner", 1, within=session):
            pay(session)

    site._view = view
    assert "cannot be nested" in site.post().text
    assert (site.count(), list(site.store.scan(""))) == (0, [])


def test_a_guarded_view_within_another_session_commits_it(pay_app):
    site = pay_app()
    with Session(site.engine) as other:

        @idempotent(within=other)
        def inner():
            return str(pay(other, 9))

        def view(session):
            session.execute(select(payments)).all()
            return inner()

        site._view = view
        assert site.post().status_code == 200
    assert site.amounts() == [9]


def test_a_guarded_view_within_the_same_session_is_one_transaction(pay_app):
    site = pay_app()

    @idempotent(within=site.session)
    def inner():
        return str(pay(site.session, 9))

    site._view = lambda session: (inner(), 422)
    assert site.post().status_code == 422
    assert site.count() == 0


def test_a_pool_of_one_connection_is_enough(pay_app):
    site = pay_app(engine={"pool_size": 1, "max_overflow": 0, "pool_timeout": 2})
    site.before = lambda: site.session.execute(select(payments)).all()
    assert [site.post(str(key), amount=key).status_code for key in range(5)] == [201] * 5
    assert site.amounts() == list(range(5))


@pytest.mark.parametrize("store", ["memory", "other"])
def test_a_store_elsewhere_is_refused_before_anything_is_claimed(pay_app, tmp_path, store):
    site = pay_app()
    elsewhere = SqlStore(create_engine(f"sqlite:///{tmp_path}/elsewhere.db"))
    elsewhere.create_table()
    app = site.app
    app.extensions["idempotence"].engine.store = elsewhere if store == "other" else MemoryStore()
    told = errors_as_text(site).post().text
    assert "in the session's own database" in told
    is_file = store == "other" and site.engine.dialect.name == "sqlite"
    assert (str(tmp_path / "elsewhere.db") in told) == is_file
    assert list(elsewhere.scan("")) == []
    elsewhere.close()


def test_without_sqlalchemy_the_extra_is_named():
    code = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from flask_idempotence import ConfigurationError, idempotent, Idempotence\n"
        "for use in (lambda: idempotent(within=print),\n"
        "            lambda: Idempotence().once('a', 1, within=print)):\n"
        "    try: use()\n"
        "    except ConfigurationError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count('pip install "flask-idempotence[sql]"') == 2


def test_hooks_and_handlers_that_raise_change_nothing_of_what_is_committed(pay_app):
    site = pay_app()
    raising = []

    def raise_where(name):
        if name in raising:
            raise ArithmeticError(name)

    site.app.after_request(lambda response: raise_where("after") or response)
    site.app.teardown_request(lambda _: raise_where("teardown"))
    site.app.register_error_handler(KeyError, lambda _: raise_where("handler") or ("no", 200))
    raising.append("after")
    assert site.post("one", amount=1).status_code == 500
    raising[:] = ["teardown"]
    with pytest.raises((ArithmeticError, ExceptionGroup)):  # a group since Flask 3.2
        site.post("two", amount=2)
    raising[:] = ["handler"]
    site._view = lambda session: pay(session) and {}["none"]
    assert site.post("three").status_code == 500
    raising.clear()
    site._view = None
    assert site.post("one", amount=1).status_code == 201
    assert site.post("two", amount=2).status_code == 201
    assert site.amounts() == [1, 2]
    assert site.post("three", amount=3).headers.get("Idempotent-Replayed") is None
    assert site.amounts() == [1, 2, 3]


def test_a_handler_that_raises_on_what_cannot_be_committed_is_500_and_free(pay_app):
    def view(session):
        session.add(Payment(id=1))
        return "paid"

    def handler(error):
        raise ArithmeticError

    site = pay_app(view, handlers={IntegrityError: handler})
    assert [site.post().status_code for _ in range(2)] == [500, 500]
    assert (site.runs, site.count(), list(site.store.scan(""))) == (2, 0, [])


@pytest.mark.parametrize(
    ("remember", "status", "runs", "count"),
    [
        ("final", 201, 1, 1),
        ("success", 201, 1, 1),
        ("success", 404, 2, 0),
        ("final", 404, 1, 0),
        (lambda response: False, 201, 2, 0),
        (lambda response: True, 201, 1, 1),
        (lambda response: True, 503, 1, 0),
    ],
)
def test_what_is_remembered_decides_with_the_result_what_is_committed(
    pay_app, remember, status, runs, count
):
    site = pay_app(lambda session: (str(pay(session)), status), remember=remember)
    assert [site.post().status_code for _ in range(2)] == [status, status]
    assert (site.runs, site.count()) == (runs, count)


@pytest.mark.parametrize("toggle", ["IDEMPOTENCE_ENABLED", "IDEMPOTENCE_KEY_ENABLED"])
def test_a_guard_that_is_switched_off_commits_and_rolls_back_beside_any_store(tmp_path, toggle):
    site = PaymentApp(f"sqlite:///{tmp_path}/books.db", store=MemoryStore())
    errors_as_text(site)
    assert "needs the store in the session's own database" in site.post().text
    site.app.config[toggle] = False
    assert [site.post(amount=amount).status_code for amount in (1, 2)] == [201, 201]
    site._view = lambda session: (str(pay(session)), 422)
    assert site.post().status_code == 422
    site._view = lambda session: pay(session) and {}["none"]
    site.app.testing = True
    with pytest.raises(KeyError):
        site.post()
    assert (site.amounts(), site.runs) == ([1, 2], 4)
    site.app.testing = False
    site.app.config[toggle] = True
    assert site.post().status_code == 500
    assert site.runs == 4
    site.close()
