"""Changes of a state: a conditional UPDATE, with the state before in its WHERE.

It is one statement: the second one finds no row to update. A parcel that is shipped already is no
error to a request that wants it shipped. The condition is valid as long as the row exists.

MySQL's own count of rows omits unchanged ones, and would seem to make the condition superfluous;
SQLAlchemy asks for the rows found.
"""

from __future__ import annotations

from typing import Any

from flask import Blueprint, abort, request
from flask.typing import ResponseReturnValue
from sqlalchemy import CursorResult, select, update

from flask_idempotence import no_repeat_submit

from .answers import answer
from .models import Departure, Parcel
from .sessions import session

BEFORE = {"shipped": "packed", "cancelled": "packed"}
"""Each state that can be requested, and the state before it."""

blueprint = Blueprint("state_machine", __name__, url_prefix="/state-machine")


@blueprint.post("/<int:number>")
def move(number: int) -> ResponseReturnValue:
    """Ship a parcel or cancel it, once and not both."""
    wanted = wanted_status()
    changes: CursorResult[Any] = session().execute(  # type: ignore[assignment]
        update(Parcel)
        .where(Parcel.number == number, Parcel.status == BEFORE[wanted])
        .values(status=wanted)
    )
    if changes.rowcount:
        session().add(Departure(parcel=number, status=wanted))  # in the same transaction
        session().commit()
        return answer(200, status=wanted, changed=True)
    status = session().scalar(select(Parcel.status).where(Parcel.number == number)) or abort(404)
    return answer(200 if status == wanted else 409, status=status, changed=False)


# The lock refuses the same request from the same sender for five seconds: not another one at the
# same time, nor the same one later.
@blueprint.post("/<int:number>/guarded")
@no_repeat_submit(5, "You have just requested this.")
def guarded(number: int) -> ResponseReturnValue:
    """Read the state, then change it: between the two, another request may do the same."""
    wanted = wanted_status()
    status = session().scalar(select(Parcel.status).where(Parcel.number == number)) or abort(404)
    if not may_become(wanted, status):
        return answer(409, status=status, changed=False)
    session().execute(update(Parcel).where(Parcel.number == number).values(status=wanted))
    session().add(Departure(parcel=number, status=wanted))
    session().commit()
    return answer(200, status=wanted, changed=True)


def may_become(wanted: str, status: str) -> bool:
    """Return whether a state may follow another."""
    return BEFORE[wanted] == status


def wanted_status() -> str:
    """Return the state that the form requests, or answer with 400."""
    wanted = request.form.get("status", "")
    return wanted if wanted in BEFORE else abort(400, f"status: one of {', '.join(BEFORE)}.")
