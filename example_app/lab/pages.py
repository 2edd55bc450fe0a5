"""The lab's page: what is wanted, the start of a run, and what is known of it so far."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

from flask import Blueprint, abort, jsonify, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from flask_idempotence import RepeatSubmit, no_repeat_submit

from ..answers import wants_page
from ..database import database
from ..extensions import idempotence
from . import runs, views
from .events import INSERT, LANE
from .runs import FAILURES, LONGEST_DELAY, MODES, MOST_REQUESTS, PATIENCE

BURST = Path(__file__).resolve().with_name("burst.py")
MOST_EVENTS = 5000

blueprint = Blueprint("lab", __name__, url_prefix="/lab")
blueprint.register_blueprint(views.blueprint)


@blueprint.get("")
@blueprint.get("/runs/<int:number>")
def page(number: int | None = None) -> ResponseReturnValue:
    """Show the lab, with a run if there is one."""
    return lab_page(runs.find(number) if number else None)


# A lab that is started by a double click should run once, too.
@blueprint.post("/runs")
@no_repeat_submit(1, "This run has just been started.")
def start() -> ResponseReturnValue:
    """Start a run and answer at once."""
    address = own_address()
    run = runs.create(request.form)
    fire(run, address)
    location = url_for(".page", number=run.number)
    if wants_page():
        return redirect(location, HTTPStatus.SEE_OTHER)
    events = url_for(".events", number=run.number)
    return jsonify(run=run.number, page=location, events=events), HTTPStatus.ACCEPTED


@blueprint.get("/runs/<int:number>/events")
def events(number: int) -> ResponseReturnValue:
    """Tell what has happened since the last event that the page knows.

    The page asks again and again. A stream of events would hold a worker for as long as somebody
    looks, and the plainest kind of worker can do one thing at a time.
    """
    run = runs.find(number)  # before the events: what ends meanwhile is told the next time
    told = database().read(
        "SELECT number, lane, what, detail, at FROM lab_events WHERE run = ? AND number > ? "
        "ORDER BY number LIMIT ?",
        *(number, request.args.get("after", 0, type=int), MOST_EVENTS),
    )
    answer = jsonify(
        lanes=run.requests,
        began=run.began,
        now=time.time(),
        is_over=run.is_over and len(told) < MOST_EVENTS,
        events=[list(event.values()) for event in told],
        **runs.truth(run),
    )
    answer.headers["Cache-Control"] = "no-store"
    return answer


@blueprint.errorhandler(RepeatSubmit)
def repeated(error: RepeatSubmit) -> ResponseReturnValue:
    """Show the lab to a browser that started it twice."""
    is_start = request.endpoint == "lab.start" and wants_page()
    return lab_page(None, error) if is_start else error


def lab_page(run: runs.Run | None, error: RepeatSubmit | None = None) -> ResponseReturnValue:
    """Return the page."""
    page = render_template(
        "lab.html",
        run=run,
        truth=run and runs.truth(run),
        modes=MODES,
        failures=FAILURES,
        most_requests=MOST_REQUESTS,
        longest_delay=LONGEST_DELAY,
        notice=error and error.description,
    )
    return page, error.code if error else HTTPStatus.OK


def fire(run: runs.Run, address: tuple[str, int]) -> None:
    """Let a program of its own send the requests, over real connections to this server.

    A page could not: browsers keep all but six or so of its requests waiting. Nor should a thread
    of this process: it would share one interpreter with the views that it hurries.
    """
    headers = {}
    if run.mode == "token":
        headers["Idempotence-Token"] = idempotence.issue_token("lab")
    if run.mode in ("key", "wait"):
        headers["Idempotency-Key"] = f'"lab run {run.number}, asked at {run.asked}"'
    plan: dict[str, Any] = {
        "insert": INSERT,
        "lane_header": LANE,
        "database": str(database().path.resolve()),
        "run": run.number,
        "lanes": run.requests,
        "address": address,
        "path": url_for(f"lab.requests.{run.mode}", run=run.number),
        "headers": headers,
        "tries": 7 if run.mode == "key" else 1,
        "patience": PATIENCE,
    }
    command = [sys.executable, "-I", BURST]
    options = {"input": json.dumps(plan).encode()}
    # The thread waits for the program's end, so that no zombie stays behind.
    threading.Thread(target=subprocess.run, args=[command], kwargs=options, daemon=True).start()


def own_address() -> tuple[str, int]:
    """Return where this server listens, as its socket says.

    What the request says (`Host`) is the sender's word, who could aim the burst at others.
    """
    connection = request.environ.get("werkzeug.socket") or request.environ.get("gunicorn.socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        abort(501, "The lab needs a server with a TCP socket: flask run, or gunicorn.")
    host, port = connection.getsockname()[:2]
    return str(host), int(port)
