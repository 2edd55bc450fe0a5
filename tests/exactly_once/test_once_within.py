"""A block of once() within a session: committed with its result, or as if it had never been."""

import sqlite3
from contextlib import nullcontext

import pytest
from helpers.apps import KEY
from helpers.payment_database import Payment, PaymentApp, is_clean, lose_claim, pay
from sqlalchemy.exc import IntegrityError

from flask_idempotence import (
    ConfigurationError,
    LeaseLost,
    Running,
    StoreUnavailable,
    current_guard,
    idempotent,
)


def once(site, id_=1, **more):
    return site.idempotence.once("jobs", id_, within=site.session, **more)


def in_block(site, *steps):
    """Do some steps, functions of the session, in a block; an exception is raised."""
    with once(site):
        for step in steps:
            if isinstance(step, BaseException):
                raise step
            step(site.session)


@pytest.mark.parametrize("in_request", [False, True])
def test_a_block_is_committed_with_its_result(pay_app, in_request):
    site = pay_app()
    around = site.app.test_request_context if in_request else site.app.app_context
    results = []
    for _ in range(2):
        with around():
            with once(site) as operation:
                if operation.first:
                    pay(site.session)
                    operation.result = ["paid"]
            results.append((operation.first, operation.result))
            assert is_clean(site.session())
    assert results == [(True, ["paid"]), (False, ["paid"])]
    assert site.amounts() == [3]


ENDS = {
    "an exception": ([pay, KeyError()], KeyError, True),
    "one that was to be kept": ([pay, lambda _: current_guard.keep(), KeyError()], KeyError, True),
    "a flush that fails": ([lambda session: session.add(Payment(id=1))], IntegrityError, True),
    "a lost claim": ([lambda _: lose_claim(), pay], LeaseLost, False),
    "an end from outside": ([pay, SystemExit()], SystemExit, False),
}
"""Steps in a block, its error, and whether it may come again before the lease ends."""


@pytest.mark.parametrize("end", ENDS)
def test_a_block_that_fails_loses_its_claim_or_is_ended_is_rolled_back(pay_app, end):
    site = pay_app()
    steps, error, comes_again = ENDS[end]
    with site.app.app_context():
        with pytest.raises(error):
            in_block(site, *steps)
        assert is_clean(site.session())
        with nullcontext() if comes_again else pytest.raises(Running), once(site) as again:
            assert again.first
            pay(site.session, 8)
        assert is_clean(site.session())
    assert site.amounts() == [8] * comes_again


def test_a_result_that_is_none_of_json_is_rolled_back(pay_app):
    site = pay_app()
    with site.app.app_context():
        with pytest.raises(TypeError):
            once(site)(lambda: pay(site.session) and object())()
        assert is_clean(site.session())
        with once(site) as again:
            assert again.first
    assert site.count() == 0


def test_switched_off_a_block_is_committed_and_rolled_back_all_the_same(pay_app):
    site = pay_app(settings={"IDEMPOTENCE_ENABLED": False})
    with site.app.app_context():
        for _ in range(2):
            in_block(site, pay)
        with pytest.raises(KeyError):
            in_block(site, pay, KeyError())
    assert site.amounts() == [3, 3]
    assert list(site.store.scan("")) == []


def test_a_block_whose_database_is_locked_raises_what_the_policy_says(tmp_path):
    site = PaymentApp(f"sqlite:///{tmp_path}/books.db", engine={"connect_args": {"timeout": 0.1}})
    rival = sqlite3.connect(tmp_path / "books.db", isolation_level=None)
    with site.app.app_context():
        with pytest.raises(StoreUnavailable):
            in_block(
                site,
                lambda session: session.add(Payment(amount=1)),
                lambda session: rival.execute("BEGIN IMMEDIATE"),
                lambda session: setattr(site.store, "_deadline", 0.1),  # nor may the release
            )
        assert is_clean(site.session())
    rival.close()
    assert site.count() == 0
    site.close()


def test_an_inner_block_of_the_same_operation_writes_in_the_outer_transaction(pay_app):
    site = pay_app()
    with site.app.app_context():
        with pytest.raises(KeyError), once(site):
            in_block(site, pay, KeyError())
        with once(site):
            with once(site) as inner:
                assert inner.first
                pay(site.session, 2)
            assert site.amounts() == []
        assert site.amounts() == [2]
        with once(site) as later:
            assert not later.first


@pytest.mark.parametrize("block", ["once", "step"])
def test_a_step_in_anothers_transaction_is_refused(pay_app, block):
    """It would be done, and its writes rolled back with the block around it."""
    site = pay_app()

    def view():
        around = getattr(site.idempotence, block)("outer", 1, within=site.session)
        with around, site.idempotence.step("inner") as step:
            pay(site.session) if step.first else None
        return "paid"

    site.app.testing = True
    site.app.post("/nested")(idempotent(view))
    with pytest.raises(ConfigurationError, match="or within= a session"):
        site.app.test_client().post("/nested", headers=KEY)
    assert site.amounts() == []
