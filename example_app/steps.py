"""A payment of three steps, which survives the death of its process.

The death of the process that serves the shop would end the demonstration. So the shop hands the
request to a worker, a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from flask import Blueprint, Response, abort, current_app, jsonify, request
from flask.typing import ResponseReturnValue

from .bad_network import cut
from .database import database
from .payments import requested_amount
from .worker import KILL, PATH

COMMAND = (sys.executable, "-m", "example_app.worker")
LONGEST = 30
"""Seconds."""

blueprint = Blueprint("steps", __name__)
_one_at_a_time = threading.Lock()


@blueprint.post(PATH)
def hand_on() -> ResponseReturnValue:
    """Hand a payment to a worker. Nobody answers if it is killed: the connection is cut."""
    names = ("Idempotency-Key", "X-Example-Kill")
    work = {
        "database": str(database().path.resolve()),
        "secret": str(current_app.secret_key),
        "sender": request.remote_addr,
        "amount": requested_amount(),
        "headers": {name: request.headers[name] for name in names if name in request.headers},
    }
    operation = request.headers.get("Idempotency-Key", "")[:64]
    database().write("INSERT INTO tries (operation) VALUES (?)", operation)
    with _one_at_a_time:
        worker = subprocess.run(  # noqa: S603 (a constant)
            COMMAND,
            input=json.dumps(work),
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parent.parent,
            timeout=LONGEST,
        )
    if abs(worker.returncode) == KILL:
        return Response.from_app(cut, request.environ)
    if worker.returncode:
        current_app.logger.error("The worker failed: %s", worker.stderr)
        abort(500)
    response = json.loads(worker.stdout)
    return Response(response["body"], response["status"], response["headers"])


@blueprint.get(PATH)
def list_steps() -> ResponseReturnValue:
    """List the steps in the database, latest payment first."""
    steps = "SELECT payment, step, pid, at FROM payment_steps ORDER BY number DESC LIMIT 12"
    return jsonify(steps=database().read(steps))
