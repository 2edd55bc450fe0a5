"""An application that writes payments into a database, within its guard's transaction."""

import pytest
from flask import Flask, abort, jsonify, request
from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    func,
    insert,
    select,
)
from sqlalchemy.orm import DeclarativeBase, Session, scoped_session, sessionmaker

from flask_idempotence import ConfigurationError, Idempotence, SqlStore, current_guard, idempotent
from helpers.apps import verdict

metadata = MetaData()
payments = Table(
    "payments",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("amount", Integer, nullable=False),
    Column("reference", String(40), unique=True),
)


class PaymentApp:
    """One application with a session of its own, and the payments in its database.

    `guard` is what else `idempotent` is told. The store's deadline is that of a busy machine.
    """

    def __init__(
        self,
        url,
        view=None,
        *,
        settings=None,
        store=None,
        handlers=None,
        prepare=True,
        deadline=5,
        engine=None,
        sessions=None,
        **guard,
    ):
        self.engine = create_engine(url, **(engine or {}))
        if prepare:
            metadata.create_all(self.engine)
        self.session = scoped_session(sessionmaker(self.engine, **(sessions or {})))
        self.store = store or SqlStore(self.engine, deadline=deadline)
        if prepare:
            SqlStore(self.engine).create_table()
        self.app = Flask("books")
        self.app.config.update(SECRET_KEY="a secret for the tests", **(settings or {}))
        self.idempotence = Idempotence(self.app, store=self.store)
        self.app.teardown_appcontext(lambda _: self.session.remove())
        for error, handler in (handlers or {}).items():
            self.app.register_error_handler(error, handler)
        self.before = None
        self.app.before_request(self._before)
        self.runs = 0
        self._view = view

        @self.app.post("/payments")
        @idempotent(within=self.session, **guard)
        def pay():
            self.runs += 1
            return (self._view or self.pay)(self.session)

    def add_once(self):
        """Add a view whose payment is made in a block of `once`, and may fail by its status."""

        @self.app.post("/once")
        def once():
            number = (request.get_json(silent=True) or {}).get("amount", 1)
            with self.idempotence.once("payment", number, within=self.session) as operation:
                if operation.first:
                    _, status = (self._view or self.pay)(self.session)
                    if status != 201:
                        abort(status)
            return "paid", 201

    def _before(self):
        if self.before is not None:
            self.before()

    def pay(self, session, amount=None, reference=None):
        asked = request.get_json(silent=True) or {}
        amount = asked.get("amount", 1) if amount is None else amount
        made = session.execute(
            insert(payments).values(amount=amount, reference=asked.get("reference", reference))
        )
        return jsonify(number=made.inserted_primary_key[0]), 201

    def post(self, key="one", **json):
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.app.test_client().post("/payments", json=json, headers=headers)

    def amounts(self):
        with Session(self.engine) as session:
            return list(session.scalars(select(payments.c.amount).order_by(payments.c.id)))

    def amount_of(self, number):
        with Session(self.engine) as session:
            return session.scalar(select(payments.c.amount).where(payments.c.id == number))

    def count(self):
        with Session(self.engine) as session:
            return session.scalar(select(func.count()).select_from(payments))

    def close(self):
        self.session.remove()
        self.engine.dispose()


class Base(DeclarativeBase):
    pass


class Payment(Base):
    __table__ = payments.to_metadata(Base.metadata)


def by_driver(url, driver):
    """Return the URL of a database by a driver; of mysqlclient, which may not be installed."""
    if driver == "mysqldb":
        pytest.importorskip("MySQLdb", reason="mysqlclient is not installed")
    scheme, _, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}+{driver}://{rest}"


def pay(session, amount=3):
    return session.execute(insert(payments).values(amount=amount))


def errors_as_text(site):
    site.app.register_error_handler(ConfigurationError, lambda error: (str(error), 500))
    return site


def is_unavailable(answer):
    return (answer.status_code, verdict(answer)) == (503, "store-unavailable")


def is_clean(session):
    """Whether a session is as if no guard had ever been there."""
    return not session.in_transaction() and not session.info


def lose_claim():
    claim = current_guard._claim
    store, key = claim.app.extensions["idempotence"].store, claim.key
    store.remove(key)
    store.claim(key, b"r" * 16, b"f" * 16, 30, 0)
