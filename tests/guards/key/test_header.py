"""The idempotency key: what a client may send for one, and where it may be seen again."""

import logging
import re
from enum import IntEnum
from uuid import UUID

import pytest
from flask import abort, request
from helpers.apps import KeyedApp, fail, verdict
from helpers.store_assertions import values_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flask_idempotence import ConfigurationError, KeyInvalid, idempotent
from flask_idempotence.request.key_header import parse_key

pytestmark = pytest.mark.usefixtures("no_collection")

A_UUID = "8e03978e-40d5-43e8-bc93-6894a57f9324"

PRINTABLE = st.characters(min_codepoint=0x20, max_codepoint=0x7E)


def quoted(key):
    """Write a key as a string of Structured Fields."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def send_raw(keyed, value, name="HTTP_IDEMPOTENCY_KEY"):
    """Send a header as a server hands it over, without a client that looks at it first."""
    return keyed.send(None, environ_overrides={name: value})


SAME = {
    "a UUID": ["8e03978e-40d5-43e8-bc93-6894a57f9324", '"8e03978e-40d5-43e8-bc93-6894a57f9324"'],
    "with blanks around it": ["a b", '"a b"', ' "a b" ', "\ta b", "a b  "],
    "with what is escaped": ['say "hi" C:\\', '"say \\"hi\\" C:\\\\"'],
    "the longest": ["k" * 255, quoted("k" * 255)],
    "the longest, all escaped": ['"' + '\\"' * 255 + '"'],
    "with what separates": ["a;b=c:d", '"a;b=c:d"'],
    "in the form of a byte sequence": [":cHJl:", '":cHJl:"'],
}


@pytest.mark.parametrize("kind", SAME)
def test_the_bare_and_the_quoted_form_are_one_key(kind):
    keyed = KeyedApp()
    found = [verdict(send_raw(keyed, form)) for form in SAME[kind] * 2]
    assert found == [200] + ["replay of 200"] * (len(found) - 1)
    assert keyed.runs == 1


def test_keys_that_differ_in_anything_are_two():
    keyed = KeyedApp()
    keys = ["a", "A", "aa", "a.", '"a b"', '"a  b"', '" a"', '"a "', '"a,b"', '"a, b"', '"\\\\a"']
    assert [verdict(send_raw(keyed, key)) for key in keys] == [200] * len(keys)
    assert [verdict(send_raw(keyed, key)) for key in keys] == ["replay of 200"] * len(keys)


INVALID = {
    "empty": "",
    "blank": " \t ",
    "empty quotes": '""',
    "too long": "k" * 256,
    "too long in quotes": quoted("k" * 256),
    "an endless string": '"' + "k" * 2**20,
    "nothing but escapes": '"' + '\\"' * 2**19,
    "an unended string": '"abc',
    "an unended string of one quote": '"',
    "text after the string": '"abc"d',
    "a string with a parameter": '"abc";version=1',
    "an unknown escape": '"a\\bc"',
    "an escape without an end": '"abc\\"',
    "several equal keys": "abc,abc",  # several lines, as a server joins them
    "several strings": '"abc", "def"',
    "a string and a bare key": '"abc", def',
    "a key and an empty line": "abc,",
    "NUL": "a\0b",
    "a tab inside": "a\tb",
    "a carriage return in quotes": '"a\rb"',
    "DEL": "a\x7fb",
    "Latin-1": "caf\xe9",
    "UTF-8": "café".encode().decode("latin-1"),
    "a blank that is not ASCII": "\xa0abc",
}


@pytest.mark.parametrize("kind", INVALID)
def test_an_invalid_key_is_refused_before_anything_else_happens(kind):
    keyed, identified = KeyedApp(), []
    keyed.idempotence.identity_loader(lambda: identified.append(1))
    answer = send_raw(keyed, INVALID[kind])
    assert (answer.status_code, verdict(answer)) == (400, "key-invalid")
    assert (keyed.runs, identified, len([*keyed.store.scan("")])) == (0, [], 0)


@settings(max_examples=300, deadline=2000)
@given(
    st.one_of(
        st.text(),
        st.binary().map(lambda raw: raw.decode("latin-1")),
        st.text(PRINTABLE, min_size=1, max_size=255).map(quoted),
    )
)
@example('"' * 50_000)
@example('"' + "\\" * 50_001)
@example("," * 50_000)
def test_whatever_is_sent_is_a_key_of_1_to_255_printable_characters_or_invalid(value):
    try:
        key = parse_key(value)
    except KeyInvalid:
        return
    assert 1 <= len(key) <= 255
    assert all(" " <= character <= "~" for character in key)
    assert parse_key(quoted(key)) == key


class Colour(IntEnum):
    RED = 3


FOUND = {
    **{repr(key): key for key in ("delivery 7", 7, -7, 0, "ключ", "\0", Colour.RED, UUID(A_UUID))},
    "the longest text": "k" * 255,
    "nothing": None,
    "an empty text": "",
    "a very long text": "k" * 2**20,
    "a long number": 10**255,
    "a number too long to write": 10**9999,
    "yes": True,
    "a fraction": 1.5,
    "a list": ["a"],
    "an object": {},
    "bytes": b"bytes",
}
"""What a function returns for a key: keys, none, and garbage."""
NAMES = list(FOUND)
KEYS = NAMES[: NAMES.index("nothing")]


class TestOtherSources:
    def test_the_setting_names_the_header_and_the_route_another(self):
        keyed = KeyedApp(settings={"IDEMPOTENCE_KEY_HEADER": "X-Request-Id"})
        keyed.add("/hook", lambda: "done", key="X-Delivery")
        for path, name in [("/", "X-Request-Id"), ("/hook", "X-Delivery")]:
            sent = {"key": None, "path": path, "headers": {name: "7"}}
            assert keyed.verdicts(sent, sent) == [200, "replay of 200"]
            assert keyed.verdicts(*[{"path": path}] * 2) == [200, 200]
        assert keyed.runs == 6

    @pytest.mark.parametrize("kind", FOUND)
    @pytest.mark.parametrize("required", [True, False])
    def test_a_function_finds_the_key(self, kind, required):
        keyed = KeyedApp(
            key=lambda: FOUND[kind], required=required, settings={"PROPAGATE_EXCEPTIONS": False}
        )
        found = keyed.verdicts({"key": None}, {})
        if kind in KEYS:
            assert found == [200, "replay of 200"]
            return
        if kind == "nothing":
            assert found == (["key-missing"] * 2 if required else [200, 200])
        else:
            assert found == ["key-invalid"] * 2
            detail = keyed.send().json["detail"]
            assert detail.endswith("text of 1 to 255 characters, an integer or a UUID.")
        is_run = kind == "nothing" and not required
        assert (keyed.runs, len([*keyed.store.scan("")])) == (2 * is_run, 0)

    def test_a_text_that_shows_itself_masked_counts_whole(self):
        class Masked(str):
            def __str__(self):
                return "****"

        found = iter([Masked("a"), Masked("b"), Masked("a")])
        keyed = KeyedApp(key=lambda: next(found))
        assert keyed.verdicts(*[{"key": None}] * 3) == [200, 200, "replay of 200"]

    def test_a_function_may_refuse_the_request_itself(self):
        keyed = KeyedApp(key=lambda: abort(403, "The signature is wrong."))
        assert keyed.verdicts({}, {}) == [403, 403]
        assert (keyed.runs, len([*keyed.store.scan("")])) == (0, 0)

    def test_a_function_may_read_the_body_which_the_view_reads_again(self):
        keyed = KeyedApp(lambda: request.json["event"], key=lambda: request.json["delivery"])
        body = {"delivery": 7, "event": "paid"}
        assert keyed.send(None, json=body).text == "paid"
        found = keyed.verdicts({"json": body}, {"json": {**body, "event": "refunded"}})
        assert found == ["replay of 200", "key-reused"]


INJECTIONS = ["a:b", "*", "{tag}", "k' OR '1'='1", "../../etc", "\\r\\nFLUSHALL", "k%00"]


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_the_key_itself_is_neither_stored_nor_logged(store, caplog, request):
    uri = None if store == "memory" else request.getfixturevalue("redis_url")
    caplog.set_level(logging.DEBUG)
    keyed = KeyedApp(lambda: {"paid": True}, uri=uri)
    keyed.add("/once", fail, on_repeat="reject", guarantee="at-most-once")
    keyed.app.config["PROPAGATE_EXCEPTIONS"] = False
    key = "raw-key-0815"
    seen = keyed.verdicts({}, {"key": quoted(key)}, {"key": quoted(key), "json": {}}, key=key)
    assert seen == [200, "replay of 200", "key-reused"]
    assert keyed.verdicts({}, {}, key=key, path="/once") == [500, "key-repeated"]
    keyed.verdicts(*[{"key": each} for each in INJECTIONS])
    names, values = stored_in(keyed, uri and request.getfixturevalue("redis_server"))
    assert len(names) == keyed.runs == 2 + len(INJECTIONS)
    assert all(re.fullmatch(r"idempotence:2:key:\w+:[0-9a-f]{32}", name) for name in names)
    assert values.count("paid") == 1 + len(INJECTIONS)
    assert caplog.text.count("Request") == 3
    assert not any(each in caplog.text + values for each in (key, *INJECTIONS) if len(each) > 3)


def stored_in(keyed, server):
    """Return all that the store holds, keys and values as text."""
    if server is None:
        held = values_of(keyed.store)
        return list(held), repr(held)
    with server.client() as client:
        names = client.keys("*")
        values = b"".join(client.get(name) for name in names)
    return [name.decode() for name in names], values.decode("latin-1")


# A pattern that keys must match: by a setting, or at a route

PATTERN = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
NOT_UUIDS = ["order-1", A_UUID + "0", "0" + A_UUID, A_UUID.replace("-", ""), f"{A_UUID}\\n"]
NO_PATTERNS = {
    "empty": "",
    "unbalanced": "ab[",
    "flags in the middle": "(?i)a",  # OpenAPI shows it within quotes
    "too many repetitions": "a{99999999999}",
    "balanced within parentheses only": "a)|(?:b",
    "nested too deeply": "(" * 5000 + "a" + ")" * 5000,
    "compiled": re.compile("a"),
}


class TestAPattern:
    @pytest.mark.parametrize(
        "options",
        [
            {"settings": {"IDEMPOTENCE_KEY_PATTERN": PATTERN}},
            {"key_pattern": PATTERN},
        ],
    )
    def test_a_key_must_match_it_as_a_whole(self, options):
        keyed = KeyedApp(**options)
        assert keyed.verdicts(*({"key": key} for key in NOT_UUIDS)) == ["key-invalid"] * 5
        assert keyed.runs == 0
        assert keyed.verdicts({"key": A_UUID}, {"key": f'"{A_UUID}"'}) == [200, "replay of 200"]
        assert keyed.verdicts({"key": None}) == [200]  # no key is none that fails to match

    def test_the_refusal_names_the_pattern_and_not_the_key(self):
        answer = KeyedApp(key_pattern=".{20,}").send("secret")
        assert answer.status_code == 400
        assert answer.json["detail"].endswith(" the regular expression .{20,}")
        assert "secret" not in answer.text
        messages = {"IDEMPOTENCE_MESSAGES": {"key-invalid": "Send a UUID."}}
        answer = KeyedApp(key_pattern=PATTERN, settings=messages).send()
        assert answer.json["detail"] == "Send a UUID."

    def test_the_pattern_of_the_route_wins_over_the_setting(self):
        keyed = KeyedApp(settings={"IDEMPOTENCE_KEY_PATTERN": PATTERN}, key_pattern="a|bc")
        keys = ["a", "bc", "abc", A_UUID]
        found = keyed.verdicts(*({"key": key} for key in keys))
        assert found == [200, 200, "key-invalid", "key-invalid"]

    def test_it_holds_for_keys_of_a_function_and_not_for_a_token_of_the_application(self):
        ids = ["1234", "123", "\u0661\u0662\u0663\u0664"]  # the last in digits that are no ASCII
        keyed = KeyedApp(key=lambda: request.json["id"], key_pattern=r"\d{4}")
        found = keyed.verdicts(*({"json": {"id": sent}} for sent in ids), key=None)
        assert found == [200, "key-invalid", "key-invalid"]
        settings = {"IDEMPOTENCE_KEY_PATTERN": PATTERN}
        keyed = KeyedApp(settings=settings, key="Idempotence-Token")
        token = keyed.app.test_client().get("/token").json["token"]
        assert keyed.verdicts({"key": None, "headers": {"Idempotence-Token": token}}) == [200]

    @pytest.mark.parametrize("kind", NO_PATTERNS)
    def test_an_invalid_one_is_refused_at_start(self, kind):
        at = ".*at position 2" if kind == "unbalanced" else ""  # in the pattern itself
        with pytest.raises(ConfigurationError, match=r"idempotent\(key_pattern=...\): " + at):
            idempotent(key_pattern=NO_PATTERNS[kind])
        with pytest.raises(ConfigurationError, match="IDEMPOTENCE_KEY_PATTERN"):
            KeyedApp(settings={"IDEMPOTENCE_KEY_PATTERN": NO_PATTERNS[kind]})
