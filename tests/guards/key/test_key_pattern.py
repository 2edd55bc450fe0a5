"""A pattern that keys must match: by a setting, or at a route."""

import re

import pytest
from flask import request
from helpers.apps import KeyedApp

from flask_idempotence import ConfigurationError, idempotent

UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
A_UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"
NOT_UUIDS = ["order-1", A_UUID + "0", "0" + A_UUID, A_UUID.replace("-", ""), f"{A_UUID}\\n"]


@pytest.mark.parametrize(
    "options", [{"settings": {"IDEMPOTENCE_KEY_PATTERN": UUID}}, {"key_pattern": UUID}]
)
def test_a_key_must_match_the_pattern_as_a_whole(options):
    keyed = KeyedApp(**options)
    assert keyed.verdicts(*({"key": key} for key in NOT_UUIDS)) == ["key-invalid"] * 5
    assert keyed.runs == 0
    assert keyed.verdicts({"key": A_UUID}, {"key": f'"{A_UUID}"'}) == [200, "replay of 200"]
    assert keyed.verdicts({"key": None}) == [200]  # no key is none that fails to match


def test_the_refusal_names_the_pattern_and_not_the_key():
    answer = KeyedApp(key_pattern=".{20,}").send("secret")
    assert answer.status_code == 400
    assert answer.json["detail"].endswith(" the regular expression .{20,}")
    assert "secret" not in answer.text


def test_a_message_of_the_application_replaces_the_text():
    messages = {"IDEMPOTENCE_MESSAGES": {"key-invalid": "Send a UUID."}}
    assert KeyedApp(key_pattern=UUID, settings=messages).send().json["detail"] == "Send a UUID."


def test_the_pattern_of_the_route_wins_over_the_setting():
    keyed = KeyedApp(settings={"IDEMPOTENCE_KEY_PATTERN": UUID}, key_pattern="a|bc")
    keys = ["a", "bc", "abc", A_UUID]
    assert keyed.verdicts(*({"key": key} for key in keys)) == [200, 200, *["key-invalid"] * 2]


def test_it_holds_for_keys_of_a_function_and_for_other_headers():
    keyed = KeyedApp(key=lambda: request.json["id"], key_pattern=r"\d{4}")
    keyed.add("/header", lambda: "done", key="X-Key", key_pattern=r"\d{4}")
    ids = ["1234", "123", "\u0661\u0662\u0663\u0664"]  # the last in digits that are no ASCII
    answers = [keyed.send(None, json={"id": sent}).status_code for sent in ids]
    assert answers == [200, 400, 400]
    answers = [
        keyed.send(None, "/header", headers={"X-Key": sent}).status_code for sent in ids[:2]
    ]
    assert answers == [200, 400]


def test_a_token_of_the_application_needs_to_match_nothing():
    settings = {"IDEMPOTENCE_KEY_PATTERN": UUID}
    keyed = KeyedApp(settings=settings, key="Idempotence-Token")
    token = keyed.app.test_client().get("/token").json["token"]
    assert keyed.verdicts({"key": None, "headers": {"Idempotence-Token": token}}) == [200]


NO_PATTERNS = {
    "empty": "",
    "unbalanced": "(a",
    "flags in the middle": "(?i)a",  # OpenAPI shows it within quotes
    "too many repetitions": "a{99999999999}",
    "balanced within parentheses only": "a)|(?:b",
    "nested too deeply": "(" * 5000 + "a" + ")" * 5000,
    "bytes": b"a",
    "compiled": re.compile("a"),
}


@pytest.mark.parametrize("kind", NO_PATTERNS)
def test_an_invalid_pattern_is_refused_at_start(kind):
    with pytest.raises(ConfigurationError, match=r"idempotent\(key_pattern=...\): "):
        idempotent(key_pattern=NO_PATTERNS[kind])
    with pytest.raises(ConfigurationError, match="IDEMPOTENCE_KEY_PATTERN"):
        KeyedApp(settings={"IDEMPOTENCE_KEY_PATTERN": NO_PATTERNS[kind]})


def test_the_error_counts_positions_in_the_pattern_itself():
    with pytest.raises(ConfigurationError, match="at position 2"):
        idempotent(key_pattern="ab[")
