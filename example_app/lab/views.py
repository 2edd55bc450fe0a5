"""The view under test, behind each of the guards."""

from __future__ import annotations

import time
from http import HTTPStatus

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from flask_idempotence import idempotent, no_repeat_submit, one_time_token

from ..database import database
from . import runs
from .events import lane_of_request, write_event

blueprint = Blueprint("requests", __name__, url_prefix="/runs/<int:run>")


@blueprint.before_request
def arrive() -> None:
    """Record the arrival of a request, which may be long after it was sent."""
    write_event("arrived")


@blueprint.post("/none", endpoint="none")
def unguarded(run: int) -> ResponseReturnValue:
    """Run without a guard."""
    return work(run)


@blueprint.post("/lock", endpoint="lock")
@no_repeat_submit(60, "This run has sent the same request before.")
def behind_a_lock(run: int) -> ResponseReturnValue:
    """Run once in a minute. The URL has the number of the run, so that runs do not interfere."""
    return work(run)


@blueprint.post("/token", endpoint="token")
@one_time_token(purpose="lab", restore_on_failure=True)
def behind_a_token(run: int) -> ResponseReturnValue:
    """Run once per token."""
    return work(run)


@blueprint.post("/key", endpoint="key")
@idempotent(required=True, remember="success")
def behind_a_key(run: int) -> ResponseReturnValue:
    """Run once per key. A duplicate of a running request is refused with `Retry-After`."""
    return work(run)


# A waiting request occupies a thread, or a whole sync worker. Keep `wait` short.
@blueprint.post("/wait", endpoint="wait")
@idempotent(required=True, remember="success", wait=30)
def behind_a_key_with_waiting(run: int) -> ResponseReturnValue:
    """Run once per key. A duplicate of a running request waits for the first response."""
    return work(run)


def work(number: int) -> ResponseReturnValue:
    """Take some time, then place an order; or fail, if the run asks for it."""
    run = runs.find(number)
    began = write_event("began")
    fails = run.failure != "none" and not (run.only_first and was_called_before(number, began))
    try:
        time.sleep(run.delay)
        if fails:
            return fail(run.failure)
        database().write(
            "INSERT INTO lab_effects (run, lane) VALUES (?, ?)", number, lane_of_request() or 0
        )
        return jsonify(success=True), HTTPStatus.CREATED
    finally:
        write_event("failed" if fails else "ran")


def was_called_before(run: int, began: int) -> bool:
    """Return whether the view has begun before in this run, in any process."""
    earlier = database().value(
        "SELECT count(*) FROM lab_events WHERE run = ? AND what = 'began' AND number < ?",
        run,
        began,
    )
    return bool(earlier)


def fail(how: str) -> ResponseReturnValue:
    """Fail before the side effect, in the way that the run asks for."""
    if how == "exception":
        raise RuntimeError("The settings of this run ask for an exception.")
    if how == "status":
        return jsonify(success=False), HTTPStatus.INTERNAL_SERVER_ERROR
    return jsonify(success=False), HTTPStatus.OK
