"""Applications whose users sign in in different ways, for the tests of who asks."""

from flask import request

from flask_idempotence import idempotent, no_repeat_submit
from helpers.apps import GuardedApp

ADDRESS = "192.0.2.1"
GUARDS = {"key": idempotent, "lock": lambda: no_repeat_submit(interval=60)}
REPEATED = {"key": "replay of 200", "lock": "repeat-submit"}
"""What the sender of the first request gets for the second."""


class CountingApp(GuardedApp):
    """An application with one guarded view that counts its runs.

    Args:
        guard: `"key"` or `"lock"`.
        checks: decorators outside the guard, such as a login check.
    """

    def __init__(self, guard="key", *, checks=(), rule="/", **settings):
        super().__init__(settings=settings)
        self.guard, self.checks = guard, checks
        self.add(rule)

    def add(self, rule="/", *, guards=()):
        guards = (GUARDS[self.guard](), *guards, *self.checks)
        self.add_view(rule, lambda **arguments: {"run": self.runs}, *guards)

    def send(self, path="/", *, key="order-1", address=ADDRESS, client=None, **options):
        environ = {"REMOTE_ADDR": address, **options.pop("environ", {})}
        client = client or self.app.test_client(use_cookies=False)
        sent = {"json": {"item": 1}, "environ_overrides": environ, **options}
        return super().send(key, path, client=client, **sent)

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
