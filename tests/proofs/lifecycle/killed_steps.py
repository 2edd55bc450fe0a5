"""Payments of three steps, in processes that are killed before, in and after each step."""

import os
import signal

from flask import request
from helpers.payment_database import PaymentApp, metadata
from sqlalchemy import Column, String, Table, func, insert, select

from flask_idempotence import idempotent
from flask_idempotence.stores import open_store

LEASE = 1.0
STEPS = ("reserve", "charge", "book")
POINTS = [f"{when} {step}" for step in STEPS for when in ("before", "in", "after")]

TEXT = String(80)
written = Table("written", metadata, Column("payment", TEXT), Column("step", TEXT))
asked = Table("asked", metadata, Column("key", TEXT), Column("payment", TEXT))
"""At the provider, which knows keys."""


class Payments(PaymentApp):
    """An application whose payments die at a point, and a provider of charges.

    Its store is the one of the URI; without one it is in the database, and steps are within it.
    """

    def __init__(self, uri, url):
        store = open_store(uri, {"deadline": 10}) if uri else None
        settings = {"IDEMPOTENCE_LEASE": LEASE}
        super().__init__(url, store=store, deadline=10, settings=settings)
        self.within = None if uri else self.session
        self.app.post("/steps/<payment>")(idempotent(required=True)(self.pay_in_steps))

    def die(self, point):
        if point == request.headers.get("Die"):
            os.kill(os.getpid(), signal.SIGKILL)

    def pay_in_steps(self, payment):
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
        before = select(func.count()).where(asked.c.key == key)
        with self.engine.begin() as provider:
            is_known = provider.scalar(before)
            provider.execute(insert(asked).values(payment=payment, key=key))
        return "charged before" if is_known else "charged"

    def send(self, point, *, dies=False):
        name = point.replace(" ", "-")
        headers = {"Idempotency-Key": name.ljust(36, "0")}
        if dies:
            headers["Die"] = point
        return self.app.test_client().post(f"/steps/{name}", headers=headers)

    def rows(self, table, column, point):
        chosen = select(table.c[column]).where(table.c.payment == point.replace(" ", "-"))
        with self.engine.connect() as connection:
            return sorted(connection.scalars(chosen))


def die_at(uri, url, point):
    Payments(uri, url).send(point, dies=True)
