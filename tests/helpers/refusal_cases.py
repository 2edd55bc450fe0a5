"""For each refusal, an application and what has happened there before a request meets it."""

import contextlib
from functools import partial

from flask import session

from flask_idempotence import current_guard, idempotent, no_repeat_submit, one_time_token
from helpers.apps import StillApp
from helpers.http_transcripts import BLOCK, TranscriptClient
from helpers.repository import REFERENCE, section

KEY = '"8e03978e-40d5-43e8-bc93-6894a57f9324"'
BILL = {"bill": "2026-17", "amount": 50}
A_DAY = 86400
NOBODY = "redis://127.0.0.1:1"  # where nobody listens


class RefusalCase(StillApp):
    def __init__(self, happened=lambda case: None, *, handlers=(), **settings):
        super().__init__(TESTING=False, SERVER_NAME="shop.example", **settings)
        self.client = self.app.test_client()
        self.names = {}
        self.add_views()
        for error, handler in dict(handlers).items():
            self.app.register_error_handler(error, handler)
        happened(self)

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

        for url, options, then in (
            ("/payments", {}, lambda: {"payment": 1}),
            ("/vouchers", {"on_repeat": "reject"}, lambda: {"payment": 1}),
            ("/exports", {}, lambda: iter(["paid"])),
            ("/transfers", {"guarantee": "at-most-once"}, self.die),
            ("/imports", {}, self.die),
            ("/refunds", {}, self.lose),
        ):
            view = idempotent(required=True, **options)(lambda then=then: (then(), 201))
            self.app.add_url_rule(url, url.strip("/"), view, methods=["POST"])

    def die(self):
        raise SystemExit("worker timeout")

    def lose(self):
        self.store.clear("")
        current_guard.ensure_held()

    def pay(self, url="/payments", later=0):
        with contextlib.suppress(SystemExit):
            # Closed at once, as a server does it.
            self.client.post(url, json=BILL, headers={"Idempotency-Key": KEY}, buffered=True)
        self.clock.advance(later)

    def take_token(self, user=None, later=0):
        client = self.app.test_client() if user else self.client
        if user:
            client.post(f"/login/{user}")
        answer = client.get("/token").get_json()
        self.names = {"<token>": answer["token"]}
        self.clock.advance(later)
        return {answer["header"]: answer["token"]}


REFUSAL_CASES = {
    "repeat-submit": partial(
        RefusalCase, lambda case: case.client.post("/orders", json={"item": "mug"})
    ),
    "token-missing": RefusalCase,
    "token-invalid": RefusalCase,
    "token-expired": partial(RefusalCase, lambda case: case.take_token(later=A_DAY)),
    "token-not-yours": partial(RefusalCase, lambda case: case.take_token("ann")),
    "token-spent": partial(
        RefusalCase, lambda case: case.client.post("/checkout", headers=case.take_token())
    ),
    "key-missing": RefusalCase,
    "key-invalid": RefusalCase,
    "key-reused": partial(RefusalCase, lambda case: case.pay()),
    "key-in-progress": partial(RefusalCase, lambda case: case.pay("/imports")),
    "key-repeated": partial(RefusalCase, lambda case: case.pay("/vouchers")),
    "outcome-unknown": partial(RefusalCase, lambda case: case.pay("/transfers", later=30)),
    "response-not-stored": partial(RefusalCase, lambda case: case.pay("/exports")),
    "lease-lost": RefusalCase,
    "store-unavailable": partial(RefusalCase, IDEMPOTENCE_STORAGE_URI=NOBODY),
}


def refused_as_documented(slug, *, accept="*/*", **options):
    """Return the answer, as text, to the request that its section shows to be refused."""
    case = REFUSAL_CASES[slug](**options)
    [asked] = BLOCK.findall(section(REFERENCE / "errors.md", slug))[:1]
    head, _, body = asked[2].partition("\n\n")
    sent = f"{head.rstrip()}\nAccept: {accept}\n\n{body}"
    return TranscriptClient(case.app, dict(case.names)).exchange(sent)
