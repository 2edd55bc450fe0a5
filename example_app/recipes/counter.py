"""At most N times: a counter with an upper limit.

It counts requests and does not recognise duplicates: three copies of one click are three votes.
"""

from __future__ import annotations

from typing import Any

from flask import Blueprint, request
from flask.typing import ResponseReturnValue
from sqlalchemy import CursorResult, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite

from flask_idempotence import no_repeat_submit

from .answers import answer, text_field
from .deadlocks import retry_on_deadlock
from .models import Votes
from .sessions import session

MOST_VOTES = 3
INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

blueprint = Blueprint("counter", __name__, url_prefix="/counter")


@blueprint.post("")
@retry_on_deadlock
def vote() -> ResponseReturnValue:
    """Count a vote, up to three per voter."""
    used = count(text_field("voter"), MOST_VOTES)
    if used is None:
        return answer(409, error=f"At most {MOST_VOTES} votes per voter.")
    return answer(200, used=used)


# One vote per voter and minute, for any number of copies of a click.
@blueprint.post("/guarded")
@no_repeat_submit(60, "You have just voted.", key=lambda: request.form.get("voter"))
def guarded() -> ResponseReturnValue:
    """Count a vote, at most one per voter and minute."""
    return answer(200, used=count(text_field("voter")))


def count(voter: str, most: int | None = None) -> int | None:
    """Increment a counter and return it, or None at its limit."""
    dialect = session().get_bind().dialect.name
    counted = raise_in_one if dialect in INSERT else raise_locked
    used = counted(voter, most)
    session().commit()
    return used


def raise_in_one(voter: str, most: int | None) -> int | None:
    """Increment in one statement, which returns no row at the limit."""
    insert = INSERT[session().get_bind().dialect.name](Votes).values(voter=voter, used=1)
    raised = insert.on_conflict_do_update(
        index_elements=[Votes.voter],
        set_={"used": Votes.used + 1},
        where=None if most is None else Votes.used < most,
    ).returning(Votes.used)
    used: int | None = session().scalar(raised)
    return used


def raise_locked(voter: str, most: int | None) -> int | None:
    """Increment on MySQL and MariaDB, whose upsert has no WHERE.

    The upsert inserts the row or locks it. An UPDATE first would be shorter, but of a missing row
    it locks the gap, and two first votes would end in a deadlock.
    """
    upsert = mysql.insert(Votes).values(voter=voter, used=0)
    session().execute(upsert.on_duplicate_key_update(voter=Votes.voter))
    is_voter = Votes.voter == voter
    raised = update(Votes).where(is_voter).values(used=Votes.used + 1)
    if most is not None:
        raised = raised.where(Votes.used < most)
    changes: CursorResult[Any] = session().execute(raised)  # type: ignore[assignment]
    return session().scalar(select(Votes.used).where(is_voter)) if changes.rowcount else None
