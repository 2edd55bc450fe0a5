"""Small applications for the tests."""

import contextlib
import re
from functools import cached_property

import werkzeug.routing.exceptions
from flask import Flask, Response, abort, jsonify, redirect

from flask_idempotence import (
    Idempotence,
    LeaseLost,
    MemoryStore,
    StoreError,
    claimed,
    completed,
    current_guard,
    idempotent,
    lease_lost,
    no_repeat_submit,
    one_time_token,
    rejected,
    released,
)
from flask_idempotence.testing import FakeClock

KEY = {"Idempotency-Key": "0b3d3f0e-6d1c-4c43-9d6e-8c8c3b8d5c11"}
"""A key of a request, which cannot be guessed."""

GUARDS = {
    "lock": no_repeat_submit(interval=10),
    "token": one_time_token(),
    "restoring token": one_time_token(restore_on_failure=True),
}
"""One guard for each set of rules by which a view's outcome is settled."""

DECORATORS = {
    "lock": lambda **more: no_repeat_submit(60, **more),
    "token": one_time_token,
    "key": lambda **more: idempotent(**{"required": True, **more}),
}

HOW_OFTEN_IT_RUNS = {
    "lock": {"success": 1, "failure": 3},
    "token": {"success": 1, "failure": 1},
    "restoring token": {"success": 1, "failure": 3},
}
"""How often a view runs in three equal submits."""


def bare_app(*, host_matching=False, subdomain_matching=False, **settings):
    matching = {"host_matching": host_matching, "subdomain_matching": subdomain_matching}
    hosts = {"static_host": "static.test"} if host_matching else {}
    app = Flask("shop", **matching, **hosts)
    app.config.update({"SECRET_KEY": "a secret for the tests", "TESTING": True, **settings})
    return app


def make_app(*, idempotence=None, store=None, **settings):
    app = bare_app(**settings)
    (idempotence or Idempotence()).init_app(app, store=store)
    return app


def add_views(app):
    """Register a view behind each mode: `/orders/fail`, `lose` or another end; return the app."""

    @app.post("/orders/<outcome>")
    @no_repeat_submit(20)
    def order(outcome):
        if outcome == "lose":
            app.extensions["idempotence"].store.clear("")
            with contextlib.suppress(LeaseLost):
                current_guard.ensure_held()
        return outcome, 400 if outcome == "fail" else 200

    @app.post("/payments")
    @idempotent(required=True)
    def pay():
        return "paid"

    @app.post("/checkout")
    @one_time_token()
    def checkout():
        return "paid"

    return app


class StillApp:
    """An application whose clock stands still, whose keeper the test drives; nobody sleeps.

    With a store of the test's own, time passes there as it does.
    """

    def __init__(self, *, store=None, clock=None, **settings):
        self.clock = clock or FakeClock()
        self.idempotence = Idempotence()
        if store is None and "IDEMPOTENCE_STORAGE_URI" not in settings:
            store = MemoryStore(clock=self.clock)
        self.app = make_app(idempotence=self.idempotence, store=store, **settings)
        self.clock.rule(self.app)
        self.engine = self.app.extensions["idempotence"].engine
        self.store = self.engine.store
        self.engine.keeper._schedule = lambda at: None  # no thread: the test ticks
        self.runs = 0


class GuardedApp(StillApp):
    def __init__(self, *, store=None, settings=None):
        clock = FakeClock()
        super().__init__(store=store and store(clock=clock), clock=clock, **(settings or {}))

    def add_view(self, rule, view, *guards):

        def counted(**arguments):
            self.runs += 1
            return view(**arguments)

        for guard in guards:
            counted = guard(counted)
        methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        self.app.add_url_rule(rule, rule.strip("/") or "view", counted, methods=methods)

    def send(self, key="k", path="/", *, method="POST", headers=(), client=None, **options):
        """Send a request with a key, or None for none; its response is closed, as by a server."""
        named = {} if key is None else {"Idempotency-Key": key}
        options = {"method": method, "buffered": True, **options}
        options["headers"] = {**named, **dict(headers)}
        return (client or self.app.test_client()).open(path, **options)

    def verdicts(self, *requests, **options):
        return [verdict(self.send(**{**options, **request})) for request in requests]


WERKZEUG_REFUSES_EQUAL_RULES = hasattr(werkzeug.routing.exceptions, "DuplicateRuleError")
"""Since Werkzeug 3.2: a route at the token URL is an error that names both where it is added."""


class CountingStore(MemoryStore):
    """A real store that counts how often it was asked for a claim, and for a token."""

    claims = tokens = 0

    def claim(self, *arguments):
        self.claims += 1
        return super().claim(*arguments)

    def take_token(self, key, subject):
        self.tokens += 1
        return super().take_token(key, subject)


class Runs(int):
    """How often a view ran, which a failed assertion prints with the answers."""

    def __new__(cls, runs, answers):
        counted = super().__new__(cls, runs)
        counted.answers = answers
        return counted

    def __repr__(self):
        return f"{int(self)} after the answers {self.answers}"


class Site(GuardedApp):
    """One guarded view, which is always sent the same request, with always the same token."""

    def __init__(self, view, guard, **settings):
        super().__init__(settings=settings)
        self.events = events_of(self.app)
        self.add_view("/", view, GUARDS[guard] if isinstance(guard, str) else guard)

    @cached_property
    def token(self):
        return self.app.test_client().get("/token").json["token"]

    def submit(self, method="POST", *, buffered=True):
        """Send the request; its response is closed, as by a server, unless it is not buffered."""
        headers = {"Idempotence-Token": self.token}
        client = self.app.test_client()
        return client.open("/", method=method, headers=headers, buffered=buffered)

    def runs_after(self, submits):
        """Submit so many times, whatever comes back, and return how often the view ran."""
        answers = []
        for _ in range(submits):
            try:
                answers.append(self.submit().status)
            except Exception as error:
                answers.append(repr(error))
        return Runs(self.runs, answers)


class KeyedApp(GuardedApp):
    def __init__(self, view=lambda: "done", *, uri=None, settings=None, **options):
        stored = {"IDEMPOTENCE_STORAGE_URI": uri} if uri else {}
        super().__init__(settings={**stored, **(settings or {})})
        self.add("/", view, **options)

    def add(self, rule, view, *, guards=(), **options):
        """Register a view behind a key guard; the other guards stand outside it."""
        self.add_view(rule, view, idempotent(**options), *guards)


def verdict(answer):
    """Say in a word what an answer is: a status, the replay of one, or the slug of a refusal."""
    if answer.headers.get("Idempotent-Replayed") == "true":
        return f"replay of {answer.status_code}"
    refusal = re.search(rb"urn:flask-idempotence:([a-z-]+)", answer.data)
    return refusal[1].decode() if refusal else answer.status_code


def events_of(app):
    """Return a list that grows by the name of every signal about a guard that the app sends."""
    names = []
    for signal in (claimed, rejected, completed, released, lease_lost):
        name = signal.name
        signal.connect(lambda _, name=name, **sent: names.append(name), app, weak=False)
    return names


def fail():
    raise ValueError("the view failed")


def no_answer(*_, **__):
    """Stand for an operation of a store that does not answer."""
    raise StoreError("no answer")


def killed():
    raise SystemExit("worker timeout")


SUCCESSES = {
    "a string": lambda: "done",
    "an empty string": lambda: "",
    "a dict": lambda: {"done": True},
    "a tuple with both": lambda: ({"done": True}, 201, {"X-Done": "yes"}),
    "a response": lambda: Response("done", 202),
    "an aborting redirect": lambda: abort(redirect("/done")),
    "a WSGI application": lambda: Response("done").__call__,
    "the word success in a text": lambda: '{"success": false}',
    "a nested success": lambda: {"steps": {"success": False}},
    "a success in a list": lambda: [{"success": False}],
    "a success that is 0": lambda: {"success": 0},
    "broken JSON": lambda: Response('{"success": false', mimetype="application/json"),
}

FAILURES = {
    "abort(404)": lambda: abort(404),
    "abort(500)": lambda: abort(500),
    "abort with a response": lambda: abort(Response("no", 422)),
    "a status in a tuple": lambda: ("no", 422),
    "a dict without success": lambda: {"success": False},
    "jsonify without success": lambda: (jsonify(success=False), 200),
    "problem JSON": lambda: Response('{"success":false}', mimetype="application/problem+json"),
    "an exception": fail,
    "None": lambda: None,
    "a tuple that is too long": lambda: ("done", 200, {}, "more"),
}
