"""What a route or a setting may say of key mode, and what is refused at once."""

import functools
from datetime import timedelta

import pytest
from flask import Response
from helpers.apps import KeyedApp, make_app

from flask_idempotence import ConfigurationError, idempotent, no_repeat_submit


@pytest.fixture(params=["memory", "redis"])
def uri(request):
    return None if request.param == "memory" else request.getfixturevalue("redis_url")


def test_a_key_may_be_required_by_the_route_or_by_the_setting():
    for options, setting, found in [
        ({}, False, 200),
        ({}, True, "key-missing"),
        ({"required": True}, False, "key-missing"),
        ({"required": False}, True, 200),
    ]:
        keyed = KeyedApp(settings={"IDEMPOTENCE_KEY_REQUIRED": setting}, **options)
        assert keyed.verdicts({"key": None}, {}) == [found, 200]
        assert keyed.send("", method="GET").status_code == 200


def test_other_modes_switched_off_change_nothing():
    keyed = KeyedApp()
    keyed.app.config.update(IDEMPOTENCE_LOCK_ENABLED=False, IDEMPOTENCE_TOKEN_ENABLED=False)
    assert keyed.verdicts({}, {}) == [200, "replay of 200"]


def test_repeats_may_be_rejected_by_the_route_or_by_the_setting():
    for options, setting, found in [
        ({}, "replay", "replay of 200"),
        ({}, "reject", "key-repeated"),
        ({"on_repeat": "reject"}, "replay", "key-repeated"),
        ({"on_repeat": "replay"}, "reject", "replay of 200"),
    ]:
        keyed = KeyedApp(settings={"IDEMPOTENCE_KEY_ON_REPEAT": setting}, **options)
        assert keyed.verdicts({}, {}) == [200, found]


@pytest.mark.parametrize("status", [409, 201, 429])
def test_the_status_of_duplicates_is_that_of_rejected_repeats_alone(status):
    settings = {"IDEMPOTENCE_DUPLICATE_STATUS": status}
    keyed = KeyedApp(settings=settings, on_repeat="reject")
    keyed.add("/busy", lambda: [keyed.send(path="/busy").status_code])
    keyed.add("/streamed", lambda: Response(iter("streamed")))
    assert [keyed.send().status_code for _ in range(2)] == [200, status]
    assert keyed.send().json["status"] == status
    assert keyed.send(path="/busy").json == [409]
    assert [keyed.send(path="/streamed").status_code for _ in range(2)] == [200, 409]


def test_a_response_is_remembered_for_as_long_as_the_route_or_the_setting_says():
    for options, setting, seconds in [
        ({}, None, 86400),
        ({}, 60, 60),
        ({"ttl": 90}, 60, 90),
        ({"ttl": timedelta(minutes=2)}, 60, 120),
        ({"ttl": 5, "guarantee": "at-most-once"}, 60, 5),
    ]:
        settings = {} if setting is None else {"IDEMPOTENCE_KEY_TTL": setting}
        keyed = KeyedApp(settings=settings, **options)
        keyed.send()
        keyed.clock.advance(seconds - 0.01)
        assert keyed.verdicts({}) == ["replay of 200"]
        keyed.clock.advance(0.02)
        assert keyed.verdicts({}, {}) == [200, "replay of 200"]


def passed_through(view):
    """Stand around a view as any decorator does."""

    @functools.wraps(view)
    def outer():
        return view()

    return outer


class TestConfiguration:
    @pytest.mark.parametrize("between", [lambda view: view, passed_through])
    def test_a_guard_above_the_route_is_found_though_another_stands_below_it(self, between):
        app = make_app()
        idempotent()(app.post("/")(between(no_repeat_submit(5)(lambda: "done"))))
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="route decorator outermost"):
                app.test_client().post("/")

    @pytest.mark.parametrize(
        ("name", "value", "remedy"),
        [
            ("ON_STORE_ERROR", "allow", "IDEMPOTENCE_ON_STORE_ERROR is 'allow'"),
            ("KEY_REMEMBER", "success", "leave IDEMPOTENCE_KEY_REMEMBER out"),
        ],
    )
    def test_settings_that_break_at_most_once_are_refused_at_start(self, name, value, remedy):
        settings = {"IDEMPOTENCE_KEY_GUARANTEE": "at-most-once", f"IDEMPOTENCE_{name}": value}
        with pytest.raises(ConfigurationError, match=remedy):
            KeyedApp(settings=settings)

    def test_the_routes_own_guarantee_wins_over_the_settings(self):
        settings = {"IDEMPOTENCE_KEY_GUARANTEE": "at-most-once"}
        keyed = KeyedApp(lambda: ("no", 500), settings=settings, guarantee="at-least-once")
        keyed.add("/mostly", lambda: ("no", 500))
        assert keyed.verdicts({}, {}) == [500, 500]
        assert keyed.verdicts({}, {}, path="/mostly") == [500, "replay of 500"]
