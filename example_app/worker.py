"""A process for one payment of three steps, which can be killed between two of them.

It reads the request from standard input and writes the response to standard output, both as JSON.
Its guard has a table in the shop's database, which outlives the process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from flask import Blueprint, Flask, jsonify, request
from flask.typing import ResponseReturnValue
from sqlalchemy import create_engine, text
from sqlalchemy.orm import scoped_session, sessionmaker

from flask_idempotence import SqlStore, idempotent

from .extensions import idempotence

LEASE = 1.0
"""Seconds after which another process continues the payment of one that was killed."""

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has the latter, and ends at once
PATH = "/api/payments/steps"

blueprint = Blueprint("worker", __name__)
session = scoped_session(sessionmaker())


@blueprint.post(PATH)
@idempotent(required=True)
def pay_in_steps() -> ResponseReturnValue:
    """Make a payment. The row of a step and its record are committed together."""
    for name in ("reserve", "charge", "book"):
        with idempotence.step(name, within=session) as step:
            if step.first:
                step.result = write_row(name)
        if step.first and name == request.headers.get("X-Example-Kill"):
            os.kill(os.getpid(), KILL)
    return jsonify(number=step.result, amount=request.json["amount"]), 201


def write_row(step: str) -> int:
    """Insert the row of a step; `book` inserts the payment, too. Return the row's number."""
    values = {"payment": request.headers["Idempotency-Key"].strip('"'), "step": step}
    rows = "INSERT INTO payment_steps (payment, step, pid) VALUES (:payment, :step, :pid)"
    session.execute(text(rows), {**values, "pid": os.getpid()})
    if step == "book":
        payments = "INSERT INTO payments (amount, how) VALUES (:amount, 'in three steps')"
        session.execute(text(payments), {"amount": request.json["amount"]})
    number: int = session.scalar(text("SELECT last_insert_rowid()"))
    return number


def answer(work: dict[str, Any]) -> dict[str, Any]:
    """Return the response to a request."""
    engine = create_engine(f"sqlite:///{work['database']}")
    session.configure(bind=engine)
    store = SqlStore(engine)
    store.create_table()
    app = Flask(__name__)
    app.config.update(SECRET_KEY=work["secret"], IDEMPOTENCE_LEASE=LEASE)
    idempotence.init_app(app, store=store)
    app.register_blueprint(blueprint)
    response = app.test_client().post(
        PATH,
        json={"amount": work["amount"]},
        headers=work["headers"],
        environ_overrides={"REMOTE_ADDR": work["sender"]},
    )
    return {"status": response.status, "headers": [*response.headers], "body": response.text}


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
