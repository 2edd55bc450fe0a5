"""For each refusal, an application and what has happened there before a request meets it."""

import contextlib
from types import MappingProxyType

from flask import session

from flask_idempotence import (
    Idempotence,
    MemoryStore,
    current_guard,
    idempotent,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.testing import FakeClock
from helpers.apps import bare_app

KEY = '"8e03978e-40d5-43e8-bc93-6894a57f9324"'
BILL = {"bill": "2026-17", "amount": 50}
A_DAY = 86400
NOBODY = "redis://127.0.0.1:1"  # where nobody listens


class RefusalCase:
    """A small shop, its clock, and a client that has been there before."""

    settings = MappingProxyType({})

    def __init__(self, store_uri=None):
        self.clock = FakeClock()
        uri = store_uri or "memory://"
        self.app = bare_app(
            TESTING=False,
            SERVER_NAME="shop.example",
            IDEMPOTENCE_STORAGE_URI=uri,
            **self.settings,
        )
        self.store = None if store_uri else MemoryStore(clock=self.clock)
        Idempotence(self.app, store=self.store)
        self.clock.rule(self.app)
        self.client = self.app.test_client()
        self.names = {}
        self.add_views()

    def add_views(self):
        @self.app.post("/orders")
        @no_repeat_submit(5, "Please do not submit the order twice.")
        def order():
            return "Ordered."

        @self.app.post("/checkout")
        @one_time_token()
        def checkout():
            return "Paid."

        @self.app.post("/login/<user>")
        def login(user):
            session["user_id"] = user
            return "Hello."

        self.add_payments("/payments")
        self.add_payments("/vouchers", on_repeat="reject")
        self.add_payments("/exports", then=lambda: iter(["paid"]))
        self.add_payments("/transfers", guarantee="at-most-once", then=self.die)
        self.add_payments("/imports", then=self.die)
        self.add_payments("/refunds", then=self.lose)

    def add_payments(self, url, then=lambda: {"payment": 1}, **options):
        view = idempotent(required=True, **options)(lambda: (then(), 201))
        self.app.add_url_rule(url, url.strip("/"), view, methods=["POST"])

    def die(self):
        raise SystemExit("worker timeout")

    def lose(self):
        self.store.clear("")
        current_guard.ensure_held()

    def pay(self, url="/payments"):
        with contextlib.suppress(SystemExit):
            # Closed at once, as a server does it.
            self.client.post(url, json=BILL, headers={"Idempotency-Key": KEY}, buffered=True)

    def take_token(self, client=None):
        answer = (client or self.client).get("/token").get_json()
        self.names = {"<token>": answer["token"]}
        return {answer["header"]: answer["token"]}


def repeat_submit():
    case = RefusalCase()
    case.client.post("/orders", json={"item": "mug"})
    return case


def token_expired():
    case = RefusalCase()
    case.take_token()
    case.clock.advance(A_DAY)
    return case


def token_not_yours():
    case = RefusalCase()
    other = case.app.test_client()
    other.post("/login/ann")
    case.take_token(other)
    return case


def token_spent():
    case = RefusalCase()
    case.client.post("/checkout", headers=case.take_token())
    return case


def paid(url="/payments", then=lambda case: None):
    case = RefusalCase()
    case.pay(url)
    then(case)
    return case


REFUSAL_CASES = {
    "repeat-submit": repeat_submit,
    "token-missing": RefusalCase,
    "token-invalid": RefusalCase,
    "token-expired": token_expired,
    "token-not-yours": token_not_yours,
    "token-spent": token_spent,
    "key-missing": RefusalCase,
    "key-invalid": RefusalCase,
    "key-reused": paid,
    "key-in-progress": lambda: paid("/imports"),
    "key-repeated": lambda: paid("/vouchers"),
    "outcome-unknown": lambda: paid("/transfers", lambda case: case.clock.advance(30)),
    "response-not-stored": lambda: paid("/exports"),
    "lease-lost": RefusalCase,
    "store-unavailable": lambda: RefusalCase(NOBODY),
}
