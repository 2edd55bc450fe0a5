"""Computed updates: a pessimistic lock. A later transaction waits until the row is unlocked.

No request is refused, and each computes from the latest value. A duplicate is not recognised: it
waits for its turn, and withdraws the amount again.

The row is found by its primary key. Without an index, InnoDB locks all rows of the table; for a
missing row it locks the gap between its neighbours.
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
    """Withdraw money from an account with a sufficient balance."""
    amount = number_field("amount")
    lock_all_of_sqlite()
    account = session().get(Account, number, with_for_update=True) or abort(404)
    left = rest(account.balance, amount)
    if left < 0:
        return answer(409, error="The balance is too low.", balance=account.balance)
    account.balance = left
    session().commit()
    return answer(200, balance=left)


# One withdrawal at a time per sender and account, and none for five seconds after it. Duplicates
# are refused, and no request waits. This does not lock the row: another sender gets in.
@blueprint.post("/<int:number>/guarded")
@no_repeat_submit(
    5,
    "You have just withdrawn money from this account.",
    key=lambda: (request.view_args or {})["number"],
)
def guarded(number: int) -> ResponseReturnValue:
    """Withdraw money from an account without a lock on its row."""
    account = session().get(Account, number) or abort(404)
    left = rest(account.balance, number_field("amount"))
    if left < 0:
        return answer(409, error="The balance is too low.", balance=account.balance)
    session().execute(update(Account).where(Account.number == number).values(balance=left))
    session().commit()
    return answer(200, balance=left)


def lock_all_of_sqlite() -> None:
    """Take SQLite's write lock, which is one for the whole file.

    SQLAlchemy omits `FOR UPDATE` on SQLite, and a transaction that has only read holds no lock:
    two of them would read the same balance.
    """
    if session().get_bind().dialect.name == "sqlite":
        session().connection().exec_driver_sql("BEGIN IMMEDIATE")


def rest(balance: int, amount: int) -> int:
    """Compute the new balance."""
    return balance - amount
