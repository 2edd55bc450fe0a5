"""The page on clients: its table, its recipes, and how a row is measured."""

import re

from flask_idempotence import idempotent
from helpers.repository import ROOT, section
from helpers.servers.faulty_shop import RESULT, RETRY_AFTER, FaultyServer, Shop

PAGE = ROOT / "docs" / "how-to" / "call-an-api.md"
MEASURED = ROOT / "docs" / "reports" / "clients.md"
KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
FAULTS = ("lost", "500", "running", "503")


def rows():
    table = section(MEASURED, "What each client sends again")
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {client: tuple(row) for client, *row in cells[1:]}


def measured(call):
    """Send a POST through each fault, and return the row; each effect happens once."""
    with Shop() as shop:
        assert attempt(call, shop, None) is None
    places = {place for place, _ in shop.keys} or {"none"}
    assert shop.effects == 1
    sent_again, waits = [], "-"
    for fault in FAULTS:
        with Shop(fault) as shop:
            problem = attempt(call, shop, KEY)
        again = len(shop.attempts) > 1
        assert shop.effects == (0 if fault == "503" and not again else 1)
        assert (problem is None) == again, problem
        assert {key for _, key in shop.keys} <= {KEY}
        sent_again.append("yes" if again else "no")
        if fault == "503" and again:
            waits = "yes" if shop.seconds >= RETRY_AFTER - 0.1 else "no"
    return (" ".join(places), *sent_again, waits)


def attempt(call, shop, key):
    try:
        call(shop.url, key)
    except Exception as problem:
        return problem
    return None


def recipe(heading, page=PAGE):
    """Run the first Python block under a heading of the page, and return its names."""
    [code, *_] = re.findall(r"(?ms)^```python\n(.*?)^```$", section(page, heading))
    names = {"__name__": "recipe"}
    exec(compile(code, str(page), "exec"), names)
    return names


def retries_of_a_final_conflict(call, *, advised):
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
