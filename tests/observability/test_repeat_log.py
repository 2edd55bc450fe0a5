"""The log lines of repeats: their level, and the route's rule in place of the address."""

import logging

import pytest
from helpers.apps import add_views, make_app
from helpers.once_operations import elsewhere

from flask_idempotence import Idempotence, Running, idempotent

ORDER = "/orders/7700770077?pin=secret-pin"


def shop(**settings):
    app = add_views(make_app(**settings))
    view = idempotent(on_repeat="reject")(lambda number: "done")
    app.add_url_rule("/vouchers/<int:number>", "vouchers", view, methods=["POST"])
    return app


def sent(app, path, times=2, **headers):
    return [app.test_client().post(path, headers=headers) for _ in range(times)]


def lines(caplog):
    """Return level and text of the lines about requests."""
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.getMessage().startswith("Request ")
    ]


def send_all(app):
    sent(app, ORDER)
    sent(app, "/payments", Idempotency_Key="one")
    sent(app, "/vouchers/17", Idempotency_Key="one")
    sent(app, "/checkout", Idempotence_Token=app.test_client().get("/token").json["token"])


REPEATS = [
    ("rejected: reason=repeat-submit mode=lock", "POST /orders/<outcome>"),
    ("replayed: mode=key", "POST /payments"),
    ("rejected: reason=key-repeated mode=key", "POST /vouchers/<int:number>"),
    ("rejected: reason=token-spent mode=token", "POST /checkout"),
]


@pytest.mark.parametrize("observe", [False, True])
@pytest.mark.parametrize("level", ["INFO", "warning", "ERROR", 35, "DEBUG"])
def test_repeats_are_logged_at_the_level_of_the_setting_with_the_rule(caplog, level, observe):
    caplog.set_level(logging.DEBUG, "flask_idempotence")
    app = shop(IDEMPOTENCE_REPEAT_LOG_LEVEL=level, IDEMPOTENCE_OBSERVE=observe)
    send_all(app)
    found = lines(caplog)
    name = logging.getLevelName(level) if isinstance(level, int) else level.upper()
    assert [level for level, _ in found] == [name] * len(REPEATS)
    for (_, text), (start, route) in zip(found, REPEATS, strict=True):
        answer = f"rejected: reason=replay{start[9:]}" if "replayed" in start else start
        expected = answer.replace("rejected", "observed") if observe else start
        assert text.startswith(f"Request {expected} ")
        assert text.endswith(f" route={route}")
    for secret in ("7700770077", "secret-pin", "one"):
        assert secret not in " ".join(text for _, text in found)


def test_a_refusal_that_is_no_repeat_stays_at_info(caplog):
    caplog.set_level(logging.DEBUG, "flask_idempotence")
    app = shop(IDEMPOTENCE_REPEAT_LOG_LEVEL="ERROR")
    sent(app, "/payments", times=1)
    sent(app, "/checkout", times=1)
    sent(app, "/payments", times=1, Idempotency_Key="one")
    app.test_client().post("/payments", headers={"Idempotency-Key": "one"}, json={"other": 1})
    found = [(level, text.split()[2]) for level, text in lines(caplog)]
    slugs = ["key-missing", "token-missing", "key-reused"]
    assert found == [("INFO", f"reason={slug}") for slug in slugs]


def test_an_operation_that_runs_is_a_repeat_outside_a_request_too(caplog):
    idempotence = Idempotence()
    app = make_app(idempotence=idempotence, IDEMPOTENCE_REPEAT_LOG_LEVEL="ERROR")

    def attempt():
        with app.app_context(), idempotence.once("jobs", 1):
            pass

    with app.app_context(), idempotence.once("jobs", 1), pytest.raises(Running):
        elsewhere(attempt)
    [(level, text)] = lines(caplog)
    assert level == "ERROR"
    assert text.startswith("Request rejected: reason=key-in-progress mode=once endpoint=jobs key=")
    assert "route=" not in text
