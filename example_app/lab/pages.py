"""The lab's page, the start of a run, and its events so far."""

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
from ..languages import Lazy
from . import runs, views
from .events import INSERT, LANE
from .runs import FAILURES, LONGEST_DELAY, MODES, MOST_REQUESTS, PATIENCE

BURST = Path(__file__).resolve().with_name("burst.py")
MOST_EVENTS = 5000
HIGHEST_EVENT = 2**53

blueprint = Blueprint("lab", __name__, url_prefix="/lab")
blueprint.register_blueprint(views.blueprint)


@blueprint.get("")
@blueprint.get("/runs/<int:number>")
def page(number: int | None = None) -> ResponseReturnValue:
    """Show the lab, with a run if there is one."""
    return lab_page(runs.find(number) if number else None, mode=request.args.get("mode"))


# A double click starts one run.
@blueprint.post("/runs")
@no_repeat_submit(1, Lazy("This run has just been started."))
def start() -> ResponseReturnValue:
    """Start a run, and respond without waiting for its end."""
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
    """Return the events after the last one that the page has.

    The page polls. A stream of events would occupy a sync worker as long as the page is open.
    """
    after = runs.whole_number(request.args.get("after"), 0, HIGHEST_EVENT)
    run = runs.find(number)  # read before the events: a run that ends now has another poll
    rows = database().read(
        "SELECT number, lane, what, detail, at FROM lab_events WHERE run = ? AND number > ? "
        "ORDER BY number LIMIT ?",
        *(number, after or 0, MOST_EVENTS),
    )
    answer = jsonify(
        lanes=run.requests,
        began=run.began,
        now=time.time(),
        is_over=run.is_over and len(rows) < MOST_EVENTS,
        events=[list(row.values()) for row in rows],
        **runs.truth(run),
    )
    answer.headers["Cache-Control"] = "no-store"
    return answer


@blueprint.errorhandler(RepeatSubmit)
def repeated(error: RepeatSubmit) -> ResponseReturnValue:
    """Show the lab, with the refusal, to a browser that started a run twice."""
    is_start = request.endpoint == "lab.start" and wants_page()
    return lab_page(None, error) if is_start else error


def lab_page(
    run: runs.Run | None, error: RepeatSubmit | None = None, mode: str | None = None
) -> ResponseReturnValue:
    """Return the page with a run, or with a mode selected."""
    if mode not in MODES:
        mode = "lock"
    page = render_template(
        "lab.html",
        run=run,
        truth=run and runs.truth(run),
        modes=MODES,
        selected=run.mode if run else mode,
        failures=FAILURES,
        most_requests=MOST_REQUESTS,
        longest_delay=LONGEST_DELAY,
        notice=error and error.description,
    )
    return page, error.code if error else HTTPStatus.OK


def fire(run: runs.Run, address: tuple[str, int]) -> None:
    """Start a program that sends the requests over real connections to this server.

    A browser sends about six requests of a page at a time. A thread of this process would compete
    with the views for its interpreter.
    """
    headers = {}
    if run.mode == "token":
        headers["Idempotence-Token"] = idempotence.issue_token("lab")
    if run.mode in ("key", "wait"):
        headers["Idempotency-Key"] = f'"lab run {run.number}, started at {run.asked}"'
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
    # The thread waits for the program's end, so that it leaves no zombie process.
    threading.Thread(target=subprocess.run, args=[command], kwargs=options, daemon=True).start()


def own_address() -> tuple[str, int]:
    """Return the address of this server's socket.

    The `Host` header is the sender's, and could direct the burst at another server.
    """
    connection = request.environ.get("werkzeug.socket") or request.environ.get("gunicorn.socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        abort(501, "The lab needs a TCP socket: start the example with flask run or Gunicorn.")
    host, port = connection.getsockname()[:2]
    return str(host), int(port)
