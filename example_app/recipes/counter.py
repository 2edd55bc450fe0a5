"""At most so often: a counter that one statement raises, unless it is full.

It counts requests, and does not know which of them are duplicates: three copies of one click are
three votes.
"""

from __future__ import annotations

from typing import Any

from flask import Blueprint, request
from flask.typing import ResponseReturnValue
from sqlalchemy.dialects import postgresql, sqlite

from flask_idempotence import no_repeat_submit

from .answers import answer, text_field
from .models import Votes
from .sessions import session

MOST_VOTES = 3
INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

blueprint = Blueprint("counter", __name__, url_prefix="/counter")


@blueprint.post("")
def vote() -> ResponseReturnValue:
    """Count a vote, up to so many for each voter."""
    used = count(text_field("voter"), MOST_VOTES)
    if used is None:
        return answer(409, error=f"Nobody votes more than {MOST_VOTES} times.")
    return answer(200, used=used)


# One vote a minute for each voter, however many copies of the click arrive.
@blueprint.post("/guarded")
@no_repeat_submit(60, "You have just voted.", key=lambda: request.form.get("voter"))
def guarded() -> ResponseReturnValue:
    """Count a vote, up to one in a minute for each voter."""
    return answer(200, used=count(text_field("voter")))


def count(voter: str, most: int | None = None) -> int | None:
    """Raise a counter and return it, or None where it has reached the most."""
    insert = INSERT[session().get_bind().dialect.name](Votes).values(voter=voter, used=1)
    raised = insert.on_conflict_do_update(
        index_elements=[Votes.voter],
        set_={"used": Votes.used + 1},
        where=None if most is None else Votes.used < most,
    ).returning(Votes.used)
    used: int | None = session().scalar(raised)
    session().commit()
    return used
