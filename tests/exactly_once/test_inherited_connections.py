"""Workers forked from a process that has used the database, as gunicorn's with `--preload`."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, time, warnings
import sqlalchemy as sa
from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy
from flask_idempotence import Idempotence, idempotent

warnings.filterwarnings("ignore", "This process", DeprecationWarning)
url = sys.argv[1]
app = Flask(__name__)
app.config.update(
    SECRET_KEY="a secret for the tests",
    SQLALCHEMY_DATABASE_URI=url,
    IDEMPOTENCE_STORAGE_URI=url,
    IDEMPOTENCE_STORAGE_OPTIONS={"deadline": 30},
    IDEMPOTENCE_LEASE=1,
)
db = SQLAlchemy(app)
idempotence = Idempotence(app)


class Payment(db.Model):
    id = db.Column(db.Integer, primary_key=True)


with app.app_context():
    db.create_all()  # the pool keeps this connection
    app.extensions["idempotence"].store.create_table()


def write(end):
    db.session.add(Payment())
    db.session.flush()
    if end == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


def write_once(end):  # within= comes after the fork
    with idempotence.once("payment", 1, within=db.session) as job:
        if job.first:
            write(end)
    return "paid"


view = write_once
if sys.argv[2] == "idempotent":
    view = idempotent(required=True, key=lambda: "one", compare=False, within=db.session)(write)
app.add_url_rule("/<any(dies, pays):end>", "pay", view, methods=["POST"])


def in_child(end):
    if not os.fork():
        status = 409
        while status == 409:  # the lease of the dead worker
            status = app.test_client().post(f"/{end}").status_code
            time.sleep(0.1)
        os._exit(status == 200)
    os.wait()


in_child("dies")
in_child("pays")
with sa.create_engine(url).connect() as connection:
    print(connection.scalar(sa.text("SELECT count(*) FROM payment")))
"""


@pytest.mark.parametrize("guard", ["idempotent", "once"])
def test_a_retry_does_not_commit_the_writes_of_a_worker_that_died(url, guard):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, guard],
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
