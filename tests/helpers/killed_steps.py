"""Payments of three steps, in processes that are killed before, in and after each step."""

import os
import signal

from flask import request
from sqlalchemy import Column, MetaData, String, Table, create_engine, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import scoped_session, sessionmaker

from flask_idempotence import Idempotence, SqlStore, idempotent
from helpers.apps import make_app

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
    """An application whose payments die at a point, and a provider of charges.

    Its store is the one of the URI; without one it is in the database, and steps are within it.
    """

    def __init__(self, uri, url):
        self.engine = create_engine(url)
        self.session = scoped_session(sessionmaker(self.engine))
        self.within = None if uri else self.session
        self.idempotence = Idempotence()
        self.store = None if uri else SqlStore(self.engine, deadline=10)
        settings = {"IDEMPOTENCE_LEASE": LEASE}
        if uri:
            settings["IDEMPOTENCE_STORAGE_URI"] = uri
            settings["IDEMPOTENCE_STORAGE_OPTIONS"] = {"deadline": 10}
        self.app = make_app(idempotence=self.idempotence, store=self.store, **settings)
        self.app.teardown_appcontext(lambda _: self.session.remove())
        self.app.post("/payments/<payment>")(idempotent(required=True)(self.pay))

    def prepare(self):
        metadata.create_all(self.engine)
        if self.store is not None:
            self.store.create_table()

    def close(self):
        self.session.remove()
        self.engine.dispose()

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

    def send(self, point, *, dies=False):
        name = point.replace(" ", "-")
        headers = {"Idempotency-Key": name.ljust(36, "0")}
        if dies:
            headers["Die"] = point
        return self.app.test_client().post(f"/payments/{name}", headers=headers)

    def rows(self, table, column, point):
        chosen = select(table.c[column]).where(table.c.payment == point.replace(" ", "-"))
        with self.engine.connect() as connection:
            return sorted(connection.scalars(chosen))


def die_at(uri, url, point):
    Payments(uri, url).send(point, dies=True)
