"""What a route or a setting may say of key mode, and what is refused at once."""

from datetime import timedelta

import pytest
from flask import Response
from helpers.apps import KeyedApp

from flask_idempotence import ConfigurationError

RULES = [
    ({}, {}, 200, "replay of 200"),
    ({"ON_REPEAT": "reject"}, {}, 200, "key-repeated"),
    ({}, {"on_repeat": "reject"}, 200, "key-repeated"),
    ({"ON_REPEAT": "reject"}, {"on_repeat": "replay"}, 200, "replay of 200"),
    ({"GUARANTEE": "at-most-once"}, {}, 500, "replay of 500"),
    ({"GUARANTEE": "at-most-once"}, {"guarantee": "at-least-once"}, 500, 500),
    ({"REMEMBER": "success"}, {}, 422, 422),
    ({"REMEMBER": "success"}, {"remember": "final"}, 422, "replay of 422"),
]


@pytest.mark.parametrize(("settings", "options", "status", "found"), RULES)
def test_a_setting_is_the_default_and_the_route_may_say_otherwise(
    settings, options, status, found
):
    settings = {f"IDEMPOTENCE_KEY_{name}": value for name, value in settings.items()}
    keyed = KeyedApp(lambda: ("said", status), settings=settings, **options)
    assert keyed.verdicts({}, {}) == [status, found]


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
    for options, settings, seconds in [
        ({}, {}, 86400),
        ({}, {"IDEMPOTENCE_KEY_TTL": 60}, 60),
        ({"ttl": timedelta(minutes=2)}, {"IDEMPOTENCE_KEY_TTL": 60}, 120),
        ({"ttl": 5, "guarantee": "at-most-once"}, {}, 5),
    ]:
        keyed = KeyedApp(settings=settings, **options)
        keyed.send()
        keyed.clock.advance(seconds - 0.01)
        assert keyed.verdicts({}) == ["replay of 200"]
        keyed.clock.advance(0.02)
        assert keyed.verdicts({}, {}) == [200, "replay of 200"]


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("ON_STORE_ERROR", "allow", "IDEMPOTENCE_ON_STORE_ERROR is 'allow'"),
        ("KEY_REMEMBER", "success", "leave IDEMPOTENCE_KEY_REMEMBER out"),
    ],
)
def test_settings_that_break_at_most_once_are_refused_at_start(name, value, remedy):
    settings = {"IDEMPOTENCE_KEY_GUARANTEE": "at-most-once", f"IDEMPOTENCE_{name}": value}
    with pytest.raises(ConfigurationError, match=remedy):
        KeyedApp(settings=settings)
