"""The view that a run is fired at, behind each of the guards."""

from __future__ import annotations

import time
from http import HTTPStatus

from flask import Blueprint, jsonify, request
from flask.typing import ResponseReturnValue

from flask_idempotence import idempotent, no_repeat_submit, one_time_token

from ..database import database
from . import runs
from .events import LANE, note

blueprint = Blueprint("requests", __name__, url_prefix="/runs/<int:run>")


@blueprint.before_request
def arrive() -> None:
    """Note that the request has arrived, which may be long after it was sent."""
    note("arrived")


@blueprint.post("/none", endpoint="none")
def unguarded(run: int) -> ResponseReturnValue:
    """Run without a guard."""
    return work(run)


@blueprint.post("/lock", endpoint="lock")
@no_repeat_submit(60, "The lab has seen this request before.")
def behind_a_lock(run: int) -> ResponseReturnValue:
    """Run once in a minute: the number of the run is in the address, so each run is its own."""
    return work(run)


@blueprint.post("/token", endpoint="token")
@one_time_token(purpose="lab", restore_on_failure=True)
def behind_a_token(run: int) -> ResponseReturnValue:
    """Run once for a token."""
    return work(run)


@blueprint.post("/key", endpoint="key")
@idempotent(required=True, remember="success")
def behind_a_key(run: int) -> ResponseReturnValue:
    """Run once for a key; what comes while it runs is told to ask again."""
    return work(run)


# A request that waits occupies a thread, or a whole worker of the sync kind. Keep this short.
@blueprint.post("/wait", endpoint="wait")
@idempotent(required=True, remember="success", wait=30)
def behind_a_key_with_waiting(run: int) -> ResponseReturnValue:
    """Run once for a key; what comes while it runs waits for its response."""
    return work(run)


def work(number: int) -> ResponseReturnValue:
    """Take some time, then do what must be done once; or fail, if the run wants that."""
    run = runs.find(number)
    began = note("began")
    fails = run.failure != "none" and not (run.only_first and was_called_before(number, began))
    try:
        time.sleep(run.delay)
        if fails:
            return fail(run.failure)
        lane = request.headers.get(LANE, 0, type=int)
        database().write("INSERT INTO lab_effects (run, lane) VALUES (?, ?)", number, lane)
        return jsonify(success=True), HTTPStatus.CREATED
    finally:
        note("failed" if fails else "ran")


def was_called_before(run: int, began: int) -> bool:
    """Whether the view of this run has begun before, in whatever process."""
    earlier = database().value(
        "SELECT count(*) FROM lab_events WHERE run = ? AND what = 'began' AND number < ?",
        run,
        began,
    )
    return bool(earlier)


def fail(how: str) -> ResponseReturnValue:
    """Fail before the side effect, in the way that was asked for."""
    if how == "exception":
        raise RuntimeError("The lab was asked for this exception.")
    if how == "status":
        return jsonify(success=False), HTTPStatus.INTERNAL_SERVER_ERROR
    return jsonify(success=False), HTTPStatus.OK
