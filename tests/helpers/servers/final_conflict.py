"""A conflict that never changes, answered in Stripe's error format, with its advice or without."""

from flask_idempotence import idempotent
from helpers.callers.clients_page import KEY, attempt, recipe
from helpers.servers.faulty_shop import RESULT, FaultyServer


def retries_of_a_final_conflict(call, *, advised):
    """Send a request twice; return how often the second is repeated, and the seconds of it."""
    app = recipe("Stripe's")["app"]
    if not advised:
        app.after_request_funcs.clear()
    effects = []

    @app.post("/<path:path>", endpoint="final")
    @idempotent(on_repeat="reject")
    def final(**_):
        effects.append("one")
        return RESULT

    app.view_functions["create"] = app.view_functions["final"]
    with FaultyServer(app) as server:
        assert attempt(call, server, KEY) is None
        assert attempt(call, server, KEY) is not None
    assert set(server.statuses[1:]) == {409}
    assert len(effects) == 1
    return len(server.attempts) - 2, server.attempts[-1].at - server.attempts[1].at
