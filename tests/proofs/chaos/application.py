"""The application under test: a view behind every kind of guard, whose runs go into a journal."""

import os
import signal
import time
import uuid
from pathlib import Path

from flask import g, request
from helpers.applications.plain import app

from flask_idempotence import idempotent, no_repeat_submit, one_time_token

from .history import Journal

journal = Journal(Path(os.environ["JOURNAL"]))
journal.watch_for_standstills()

GUARDS = {
    "once": idempotent(guarantee="at-most-once"),
    "least": idempotent(),
    "patient": idempotent(wait=2),
    "lock": no_repeat_submit,
    "token": one_time_token(),
    "restoring": one_time_token(restore_on_failure=True),
}


@app.before_request
def note_arrival():
    g.arrived = time.monotonic()


def view():
    asked, user = request.json, request.authorization.token
    operation = f"{request.endpoint}/{asked['number']}/{user}"
    attempt = request.headers["X-Attempt"]
    run = uuid.uuid4().hex
    answer = {"user": user, "number": asked["number"], "run": run, "attempt": attempt}
    first = journal.ordinal(operation) == 1
    journal.note("begun", id=run, operation=operation, attempt=attempt, arrived=g.arrived)
    end = asked["end"] if first else "success"
    if end == "failure":
        journal.note("failed", run=run)
        return answer, 503
    work = asked["work"] if first else 0.01
    time.sleep(work / 2)
    journal.note("effect", run=run)
    if end == "kill":
        journal.note("kills itself", run=run)
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "exit":
        journal.note("exits", run=run)
        raise SystemExit("told to")
    time.sleep(work / 2)
    journal.note("ended", run=run)
    return answer, 201


for mode, guard in GUARDS.items():
    app.add_url_rule(f"/{mode}", mode, guard(view), methods=["POST"])
