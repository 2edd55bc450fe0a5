"""What a route or a setting may say of key mode, and what is refused at once."""

from datetime import timedelta

import pytest
from helpers.apps import KeyedApp

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
