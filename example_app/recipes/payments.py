"""Payments: a lock and a unique index.

The lock refuses duplicates during the call to the bank, before they occupy a connection to the
database. It can be lost: it expires after a crash, and is in another store than the payment. The
index cannot: a duplicate that passes the lock waits at the index, and finds the payment.
"""

from __future__ import annotations

from flask import Blueprint, request
from flask.blueprints import BlueprintSetupState
from flask.typing import ResponseReturnValue
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from flask_idempotence import current_guard, idempotent, no_repeat_submit

from .answers import answer, number_field, text_field
from .deadlocks import retry_on_deadlock
from .models import Payment
from .sessions import session
from .unique_index import WAIT

blueprint = Blueprint("payments", __name__, url_prefix="/payments")


def reference() -> str | None:
    """Return the reference of the payment."""
    return request.form.get("reference")


@blueprint.post("")
@no_repeat_submit(30, "This payment is in progress.", key=reference)
@retry_on_deadlock
def pay() -> ResponseReturnValue:
    """Pay, or return the payment with this reference."""
    wanted = Payment(reference=text_field("reference"), amount=number_field("amount"))
    payment = find(wanted.reference) or make(wanted)
    current_guard.release()  # the row is committed, and answers the next request
    if payment.amount != wanted.amount:
        return answer(422, error="Another amount was paid under this reference.")
    return answer(201, number=payment.number, amount=payment.amount)


# The payment and its answer are committed together, so that no crash separates them. The index
# remains: it does not expire, and other code cannot bypass it.
@idempotent(key=reference, required=True, wait=WAIT, within=session)
def guarded() -> ResponseReturnValue:
    """Pay in the transaction of the guard."""
    payment = Payment(reference=text_field("reference"), amount=number_field("amount"))
    session().add(payment)
    session().flush()
    charge(payment)
    return answer(201, number=payment.number, amount=payment.amount)


@blueprint.record
def add_guarded(state: BlueprintSetupState) -> None:
    """Serve the guarded payment, or its reason where the guards' store is no database."""
    uri = str(state.app.config["IDEMPOTENCE_STORAGE_URI"])
    is_database = uri.startswith(("sqlite", "postgresql", "mysql", "mariadb"))
    view = guarded if is_database else elsewhere
    state.add_url_rule("/guarded", "guarded", view, methods=["POST"])


def elsewhere() -> ResponseReturnValue:
    """Answer 501, for the transaction of the guard needs its table in the same database."""
    return answer(
        501,
        error="within= needs the guards' table in the database of the recipes: set "
        "IDEMPOTENCE_STORAGE_URI to its URL.",
    )


@blueprint.errorhandler(IntegrityError)
def taken(_: IntegrityError) -> ResponseReturnValue:
    """Refuse a reference that other code has paid; the guard rolls the transaction back."""
    return answer(409, error="There is a payment with this reference.")


def find(reference: str) -> Payment | None:
    """Return the payment with a reference."""
    return session().scalar(select(Payment).where(Payment.reference == reference))


def make(payment: Payment) -> Payment:
    """Pay, or return the payment that another request has just made."""
    session().add(payment)
    try:
        session().flush()  # a duplicate that passes the lock waits here
    except IntegrityError:
        session().rollback()
        return session().scalars(select(Payment).filter_by(reference=payment.reference)).one()
    charge(payment)
    session().commit()
    return payment


def charge(payment: Payment) -> None:
    """Call the bank, with the reference as its idempotency key. This bank accepts at once.

    A crash or a rollback before the commit leads to a second call with the same key.
    """
