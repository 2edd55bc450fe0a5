"""Small applications for the tests."""

import contextlib
from functools import cached_property

from flask import Flask

from flask_idempotence import Idempotence, MemoryStore, no_repeat_submit, one_time_token

GUARDS = {
    "lock": no_repeat_submit(interval=10),
    "token": one_time_token(),
    "restoring token": one_time_token(restore_on_failure=True),
}
"""One guard for each set of rules by which a view's outcome is settled."""


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds

    def advance(self, seconds):
        self.seconds += seconds


def bare_app(**settings):
    """Return an application without the extension."""
    app = Flask("shop")
    app.config.update({"SECRET_KEY": "a secret for the tests", "TESTING": True, **settings})
    return app


def make_app(*, idempotence=None, store=None, **settings):
    """Return an application with the extension."""
    app = bare_app(**settings)
    (idempotence or Idempotence()).init_app(app, store=store)
    return app


class Site:
    """An application with one guarded view, which counts its runs, and clocks that stand still."""

    def __init__(self, view, guard, **settings):
        self.clock = Clock()
        self.idempotence = Idempotence()
        store = MemoryStore(clock=self.clock)
        self.app = make_app(idempotence=self.idempotence, store=store, **settings)
        self.engine = self.app.extensions["idempotence"].engine
        self.engine.clock = self.clock
        self.runs = 0

        def counted():
            self.runs += 1
            return view()

        guard = GUARDS[guard] if isinstance(guard, str) else guard
        self.app.add_url_rule("/", "view", guard(counted), methods=["GET", "POST"])

    @cached_property
    def token(self):
        return self.app.test_client().get("/token").json["token"]

    def submit(self, method="POST", *, buffered=True):
        """Send always the same request, with always the same token.

        A response is closed at once, as a server does it, unless it is not to be buffered.
        """
        headers = {"Idempotence-Token": self.token}
        client = self.app.test_client()
        return client.open("/", method=method, headers=headers, buffered=buffered)

    def runs_after(self, submits):
        """Submit so many times, whatever comes back, and return how often the view ran."""
        for _ in range(submits):
            with contextlib.suppress(Exception):
                self.submit()
        return self.runs
