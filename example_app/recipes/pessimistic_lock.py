"""Computed updates: a pessimistic lock. Whoever comes later waits until the row is free.

Nobody loses, and each computes from what the one before has left. But a duplicate is no less
welcome than the first: it waits for its turn, and takes the money once more.
"""

from __future__ import annotations

from flask import Blueprint, abort, request
from flask.typing import ResponseReturnValue
from sqlalchemy import update

from flask_idempotence import no_repeat_submit

from .answers import answer, number_field
from .models import Account
from .sessions import session

blueprint = Blueprint("pessimistic_lock", __name__, url_prefix="/pessimistic-lock")


@blueprint.post("/<int:number>")
def withdraw(number: int) -> ResponseReturnValue:
    """Take money from an account that has as much."""
    amount = number_field("amount")
    lock_all_of_sqlite()
    account = session().get(Account, number, with_for_update=True) or abort(404)
    left = rest(account.balance, amount)
    if left < 0:
        return answer(409, error="There is not as much.", balance=account.balance)
    account.balance = left
    session().commit()
    return answer(200, balance=left)


# One withdrawal at a time for each sender and account, and none for five seconds after it. It
# keeps duplicates out, and nobody waits. It is no lock on the row: another sender is let in.
@blueprint.post("/<int:number>/guarded")
@no_repeat_submit(
    5,
    "You have just taken something from this account.",
    key=lambda: (request.view_args or {})["number"],
)
def guarded(number: int) -> ResponseReturnValue:
    """Take money from an account that nobody has locked."""
    account = session().get(Account, number) or abort(404)
    left = rest(account.balance, number_field("amount"))
    if left < 0:
        return answer(409, error="There is not as much.", balance=account.balance)
    session().execute(update(Account).where(Account.number == number).values(balance=left))
    session().commit()
    return answer(200, balance=left)


def lock_all_of_sqlite() -> None:
    """Take the one lock that SQLite has for writers, that of the whole file.

    SQLAlchemy leaves `FOR UPDATE` out there, and a transaction that has only read holds nothing:
    two of them would read the same balance.
    """
    if session().get_bind().dialect.name == "sqlite":
        session().connection().exec_driver_sql("BEGIN IMMEDIATE")


def rest(balance: int, amount: int) -> int:
    """Compute what will be left."""
    return balance - amount
