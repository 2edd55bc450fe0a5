"""Rules of all modes: `unless=`, a toggle that says nothing, how a refusal looks."""

import pytest
from flask import request
from helpers.apps import DECORATORS, KEY, make_app, verdict
from helpers.servers.processes import all_at_once

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    RepeatSubmit,
    StoreUnavailable,
    current_guard,
    no_repeat_submit,
    one_time_token,
)

in_each_mode = pytest.mark.parametrize("mode", DECORATORS)


def locked_app():
    app = make_app()
    lock = no_repeat_submit(60, "Once <b>only</b>.")
    app.add_url_rule("/", "view", lock(lambda: "done"), methods=["POST"])
    return app


# A busy machine may take longer than the deadline for sixty-four of them.
@pytest.mark.parametrize(("uri", "options"), [("memory://", {}), ("redis", {"deadline": 30})])
@pytest.mark.parametrize("guard", [no_repeat_submit(20), one_time_token()], ids=["lock", "token"])
def test_of_sixty_four_at_once_one_runs(guard, uri, options, redis_url):
    uri = redis_url if uri == "redis" else uri
    app, runs = make_app(IDEMPOTENCE_STORAGE_URI=uri, IDEMPOTENCE_STORAGE_OPTIONS=options), []
    app.add_url_rule("/", "view", guard(lambda: f"{runs.append(1)}"), methods=["POST"])
    sent = {"headers": {"Idempotence-Token": app.test_client().get("/token").json["token"]}}
    sent["json"] = {"a": 1}
    codes = all_at_once([lambda: app.test_client().post("/", **sent).status_code] * 64)
    assert (codes.count(200), codes.count(409), len(runs)) == (1, 63, 1)


# A function that lets a request pass without its guard


@in_each_mode
def test_the_view_runs_unguarded_where_it_returns_true(mode):
    called, runs, idempotence = [], [], Idempotence()
    idempotence.identity_loader(lambda: called.append("identity"))
    app = make_app(idempotence=idempotence)

    def is_dry_run():
        called.append("unless")
        return "dry" in request.args

    @app.post("/")
    @DECORATORS[mode](unless=is_dry_run)
    def view():
        runs.append(current_guard.mode)
        return "done"

    client = app.test_client()
    for _ in range(3):
        assert client.post("/?dry=1", headers=KEY).status_code == 200
    assert (runs, called) == ([None] * 3, ["unless"] * 3)
    called.clear()
    found = [verdict(client.post("/", headers=KEY)) for _ in range(2)]
    assert (
        found
        == {
            "lock": [200, "repeat-submit"],
            "token": ["token-missing"] * 2,
            "key": [200, "replay of 200"],
        }[mode]
    )
    assert (called[0], called.count("unless")) == ("unless", 2)  # once a request, and first


@in_each_mode
def test_an_error_of_it_goes_through_and_the_view_does_not_run(mode):
    app, runs = make_app(), []
    view = DECORATORS[mode](unless=lambda: 1 / 0)(lambda: runs.append(1))
    app.add_url_rule("/", "view", view, methods=["POST"])
    with pytest.raises(ZeroDivisionError):
        app.test_client().post("/", headers=KEY)
    assert runs == []


def test_a_toggle_that_says_neither_yes_nor_no_is_an_error():
    app = locked_app()
    app.config["IDEMPOTENCE_LOCK_ENABLED"] = "perhaps"
    with pytest.raises(ConfigurationError, match="IDEMPOTENCE_LOCK_ENABLED"):
        app.test_client().post("/")


# How a refusal looks


@pytest.mark.parametrize(
    ("accepted", "shown"),
    [
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),
        ("*/*", "application/problem+json"),
        ("application/json", "application/problem+json"),
        ("application/problem+json, text/html", "application/problem+json"),
    ],
)
def test_both_ways_of_saying_no_vary_by_what_is_accepted(accepted, shown):
    app = locked_app()
    app.test_client().post("/")
    repeat = app.test_client().post("/", headers={"Accept": accepted})
    assert (repeat.status_code, repeat.mimetype) == (409, shown)
    assert (repeat.headers["Vary"], repeat.headers["Retry-After"]) == ("Accept", "60")
    assert ("Once &lt;b&gt;only" in repeat.text) == (shown == "text/html")


def test_waiting_is_told_in_whole_seconds_and_never_as_none():
    for seconds, header in {0: "1", 0.2: "1", 1: "1", 1.01: "2"}.items():
        assert ("Retry-After", header) in StoreUnavailable(retry_after=seconds).get_headers()


def test_an_answer_of_the_applications_own_with_another_status_asks_nobody_to_wait():
    app = locked_app()
    app.register_error_handler(RepeatSubmit, lambda error: ("done already", 200))
    app.test_client().post("/")
    repeat = app.test_client().post("/")
    assert (repeat.text, "Retry-After" in repeat.headers) == ("done already", False)
