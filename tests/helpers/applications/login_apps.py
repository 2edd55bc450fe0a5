"""Applications whose users sign in in different ways, for the tests of who asks."""

from flask import request

from flask_idempotence import Idempotence, idempotent, no_repeat_submit
from helpers.apps import make_app, verdict

ADDRESS = "192.0.2.1"
GUARDS = {"key": idempotent, "lock": lambda: no_repeat_submit(interval=60)}
REPEATED = {"key": "replay of 200", "lock": "repeat-submit"}
"""What the sender of the first request gets for the second."""


class CountingApp:
    """An application with one guarded view that counts its runs.

    Args:
        guard: `"key"` or `"lock"`.
        checks: decorators outside the guard, such as a login check.
    """

    def __init__(self, guard="key", *, checks=(), rule="/", **settings):
        self.idempotence = Idempotence()
        self.app = make_app(idempotence=self.idempotence, **settings)
        self.guard, self.checks, self.runs = guard, checks, 0
        self.add(rule)

    def add(self, rule="/", endpoint="view", *, guards=()):
        def view(**arguments):
            self.runs += 1
            return {"run": self.runs}

        guarded = GUARDS[self.guard]()(view)
        for decorate in (*guards, *self.checks):
            guarded = decorate(guarded)
        self.app.add_url_rule(rule, endpoint, guarded, methods=["POST"])

    def send(self, path="/", *, key="order-1", address=ADDRESS, client=None, **options):
        """Send the same body with the same key from the same address, whoever asks."""
        headers = {"Idempotency-Key": key, **options.pop("headers", {})}
        return (client or self.app.test_client(use_cookies=False)).post(
            path,
            headers=headers,
            json={"item": 1},
            environ_overrides={"REMOTE_ADDR": address, **options.pop("environ", {})},
            **options,
        )

    def verdicts(self, *sent):
        return [verdict(self.send(**each)) for each in sent]

    def tells_apart(self, one, other):
        """Whether two senders are two, each of whom is recognised in a second attempt."""
        again = REPEATED[self.guard]
        return self.verdicts(one, other, one, other) == [200, 200, again, again]

    def takes_for_one(self, one, other):
        """Whether two requests are two attempts of one sender."""
        return self.verdicts(one, other) == [200, REPEATED[self.guard]]

    def identity(self, **options):
        with self.app.test_request_context("/", method="POST", **options):
            identities = self.app.extensions["idempotence"].engine.services.identities
            return identities.of(self.app, request._get_current_object()).text
