"""Payments of three steps, in processes that are killed before, in and after each step.

Run as `python -m helpers.killed_steps` with a store's URI and the URL of a database. It prints one
JSON object: by the point of death, the answer to a repeat, and the rows of its payment.
"""

import json
import os
import signal
import sys
import time

from flask import Flask, request
from sqlalchemy import Column, MetaData, String, Table, create_engine, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import scoped_session, sessionmaker

from flask_idempotence import Idempotence, SqlStore, idempotent

LEASE = 1.0
STEPS = ("reserve", "charge", "book")
POINTS = [f"{when} {step}" for step in STEPS for when in ("before", "in", "after")]

metadata = MetaData()
TEXT = String(80)
written = Table("written", metadata, Column("payment", TEXT), Column("step", TEXT))
charged = Table(
    "charged", metadata, Column("key", TEXT, primary_key=True), Column("payment", TEXT)
)
"""At the provider, which knows keys."""
asked = Table("asked", metadata, Column("key", TEXT), Column("payment", TEXT))


class Payments:
    """An application whose payments die at a point, and a provider of charges."""

    def __init__(self, uri, url):
        self.engine = create_engine(url)
        self.session = scoped_session(sessionmaker(self.engine))
        app = self.app = Flask("payments")
        app.config.update(
            SECRET_KEY="a secret for the tests",
            IDEMPOTENCE_LEASE=LEASE,
            IDEMPOTENCE_STORAGE_OPTIONS={"deadline": 10},
            IDEMPOTENCE_STORAGE_URI=uri or "memory://",
        )
        store = None if uri else SqlStore(self.engine, deadline=10)
        self.within = None if uri else self.session
        self.idempotence = Idempotence(app, store=store)
        app.teardown_appcontext(lambda _: self.session.remove())
        app.post("/payments/<payment>")(idempotent(required=True)(self.pay))

    def die(self, point):
        if point == request.headers.get("Die"):
            os.kill(os.getpid(), signal.SIGKILL)

    def pay(self, payment):
        results = []
        for name in STEPS:
            self.die(f"before {name}")
            within = None if name == "charge" else self.within
            with self.idempotence.step(name, within=within) as step:
                if step.first:
                    step.result = getattr(self, name)(payment, step.key)
                self.die(f"in {name}")
            self.die(f"after {name}")
            results.append(step.result)
        return results, 201

    def reserve(self, payment, _key, step="reserve"):
        self.session.execute(insert(written).values(payment=payment, step=step))
        if self.within is None:
            self.session.commit()
        return step

    def book(self, payment, key):
        return self.reserve(payment, key, "book")

    def charge(self, payment, key):
        with self.engine.begin() as provider:
            provider.execute(insert(asked).values(payment=payment, key=key))
        try:
            with self.engine.begin() as provider:
                provider.execute(insert(charged).values(payment=payment, key=key))
        except IntegrityError:
            return "charged before"
        return "charged"

    def send(self, point, *, dies):
        headers = {"Idempotency-Key": point.replace(" ", "-").ljust(36, "0")}
        if dies:
            headers["Die"] = point
        path = f"/payments/{point.replace(' ', '-')}"
        return self.app.test_client().post(path, headers=headers)

    def told(self, point):
        answer = self.send(point, dies=False)
        payment = point.replace(" ", "-")
        with self.engine.connect() as connection:
            rows = connection.execute(select(written.c.step).where(written.c.payment == payment))
            charges = connection.execute(select(charged).where(charged.c.payment == payment))
            keys = connection.scalars(select(asked.c.key).where(asked.c.payment == payment))
            return {
                "status": answer.status_code,
                "json": answer.json,
                "written": sorted(row.step for row in rows),
                "charged": len(charges.all()),
                "asked": list(keys),
            }


def main(uri, url):
    payments = Payments(uri, url)
    metadata.create_all(payments.engine)
    if not uri:
        payments.app.extensions["idempotence"].store.create_table()
    payments.engine.dispose()
    deaths = {}
    for point in POINTS:
        if not (pid := os.fork()):
            Payments(uri, url).send(point, dies=True)
            os._exit(0)
        deaths[point] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    time.sleep(LEASE + 0.2)
    told = {point: {"death": deaths[point], **payments.told(point)} for point in POINTS}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
