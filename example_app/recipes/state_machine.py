"""Changes of a state: a conditional UPDATE with the previous state in its WHERE.

Of two such statements, the second finds no row to update. A request to ship a parcel that is
already shipped succeeds. The condition is valid as long as the row exists.

MySQL counts changed rows by default, which would make the condition seem superfluous; SQLAlchemy
asks it for the matched rows.
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
"""Each state that a request may ask for, with its previous state."""

blueprint = Blueprint("state_machine", __name__, url_prefix="/state-machine")


@blueprint.post("/<int:number>")
def move(number: int) -> ResponseReturnValue:
    """Ship a parcel or cancel it, once and never both."""
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


# The lock refuses the same request from the same sender for five seconds. It lets in another
# request at the same time, and the same request later.
@blueprint.post("/<int:number>/guarded")
@no_repeat_submit(5, "You have just requested this.")
def guarded(number: int) -> ResponseReturnValue:
    """Read the state, then change it. Another request may do the same between the two."""
    wanted = wanted_status()
    status = session().scalar(select(Parcel.status).where(Parcel.number == number)) or abort(404)
    if not may_become(wanted, status):
        return answer(409, status=status, changed=False)
    session().execute(update(Parcel).where(Parcel.number == number).values(status=wanted))
    session().add(Departure(parcel=number, status=wanted))
    session().commit()
    return answer(200, status=wanted, changed=True)


def may_become(wanted: str, status: str) -> bool:
    """Return whether a state may follow another one."""
    return BEFORE[wanted] == status


def wanted_status() -> str:
    """Return the requested state, or abort with 400."""
    wanted = request.form.get("status", "")
    return wanted if wanted in BEFORE else abort(400, f"status: one of {', '.join(BEFORE)}.")
