"""Payments: a lock and a unique index.

The lock turns duplicates away while the bank is being asked, before they occupy a connection to
the database. It may be lost: it ends after a crash, and lives in a store of its own. The index is
never lost: whoever gets past the lock waits at it, and finds the payment that was made.
"""

from __future__ import annotations

from flask import Blueprint, request
from flask.typing import ResponseReturnValue
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from flask_idempotence import current_guard, idempotent, no_repeat_submit

from .answers import answer, number_field, text_field
from .models import Payment
from .sessions import session
from .unique_index import WAIT

blueprint = Blueprint("payments", __name__, url_prefix="/payments")


def reference() -> str | None:
    """Return what names the payment."""
    return request.form.get("reference")


@blueprint.post("")
@no_repeat_submit(30, "This payment is being made.", key=reference)
def pay() -> ResponseReturnValue:
    """Pay, or tell what was paid under this reference."""
    wanted = Payment(reference=text_field("reference"), amount=number_field("amount"))
    payment = find(wanted.reference) or make(wanted)
    current_guard.release()  # the next one may come in and look: the table has it now
    if payment.amount != wanted.amount:
        return answer(422, error="Another amount was paid under this reference.")
    return answer(201, number=payment.number, amount=payment.amount)


# The payment and its answer are committed together, so that the answer is the same for ever
# after, whatever dies and when. The index stays: it has no end, and knows no other way in.
@blueprint.post("/guarded")
@idempotent(key=reference, required=True, wait=WAIT, within=session)
def guarded() -> ResponseReturnValue:
    """Pay within the transaction of the guard."""
    payment = Payment(reference=text_field("reference"), amount=number_field("amount"))
    session().add(payment)
    session().flush()
    charge(payment)
    return answer(201, number=payment.number, amount=payment.amount)


@blueprint.errorhandler(IntegrityError)
def taken(_: IntegrityError) -> ResponseReturnValue:
    """Tell one who came by another way that there is such a payment; the guard rolls it back."""
    return answer(409, error="There is a payment with this reference.")


def find(reference: str) -> Payment | None:
    """Return the payment of that reference."""
    return session().scalar(select(Payment).where(Payment.reference == reference))


def make(payment: Payment) -> Payment:
    """Pay, or return the payment of somebody who has just done so."""
    session().add(payment)
    try:
        session().flush()  # the index: whoever got past the lock waits here for the first to end
    except IntegrityError:
        session().rollback()
        return session().scalars(select(Payment).filter_by(reference=payment.reference)).one()
    charge(payment)
    session().commit()
    return payment


def charge(payment: Payment) -> None:
    """Ask the bank, with the reference as the key. This one says yes at once.

    After a crash before the commit it is asked again, and has to know the payment by that key.
    """
