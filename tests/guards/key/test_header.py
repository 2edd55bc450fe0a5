"""The idempotency key: what a client may send for one, and where it may be seen again."""

import logging
from enum import IntEnum

import pytest
from flask import abort, request
from helpers.apps import KeyedApp, fail, verdict
from helpers.store_assertions import values_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flask_idempotence import KeyInvalid
from flask_idempotence.request.key_header import key_of_value, parse_key

PRINTABLE = st.characters(min_codepoint=0x20, max_codepoint=0x7E)


def quoted(key):
    """Write a key as a string of Structured Fields."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def send_raw(keyed, value, name="HTTP_IDEMPOTENCY_KEY"):
    """Send a header as a server hands it over, without a client that looks at it first."""
    return keyed.send(None, environ_overrides={name: value})


SAME = {
    "bare and quoted": ["8e03978e-40d5", '"8e03978e-40d5"'],
    "with blanks around it": ["a b", '"a b"', ' "a b" ', "\ta b", "a b  "],
    "of digits": ["5", '"5"'],
    "with quotes inside": ['say "hi"', '"say \\"hi\\""'],
    "with backslashes": ["C:\\temp", '"C:\\\\temp"'],
    "the longest": ["k" * 255, quoted("k" * 255)],
    "the longest, all escaped": ['"' + '\\"' * 255 + '"'],
    "with what separates": ["a;b=c:d", '"a;b=c:d"'],
    "of one character": ["~", '"~"'],
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
    "much too long": "k" * 2**20,
    "an endless string": '"' + "k" * 2**20,
    "nothing but escapes": '"' + '\\"' * 2**19,
    "an unended string": '"abc',
    "an unended string of one quote": '"',
    "text after the string": '"abc"d',
    "a string with a parameter": '"abc";version=1',
    "a string with an empty parameter": '"abc";',
    "an unknown escape": '"a\\bc"',
    "an escape without an end": '"abc\\"',
    "several bare keys": "abc, def",
    "several equal keys": "abc,abc",
    "several strings": '"abc", "def"',
    "a bare key and a string": 'abc, "def"',
    "a string and a bare key": '"abc", def',
    "a key and an empty line": "abc,",
    "NUL": "a\0b",
    "NUL in quotes": '"a\0b"',
    "a tab inside": "a\tb",
    "a line feed": "a\nb",
    "a carriage return in quotes": '"a\rb"',
    "DEL": "a\x7fb",
    "Latin-1": "caf\xe9",
    "UTF-8": "café".encode().decode("latin-1"),
    "a blank that is not ASCII": "\xa0abc",
}


@pytest.mark.parametrize("kind", INVALID)
def test_an_invalid_key_is_refused_and_leaves_nothing(kind):
    keyed = KeyedApp()
    answer = send_raw(keyed, INVALID[kind])
    assert (answer.status_code, verdict(answer)) == (400, "key-invalid")
    assert (keyed.runs, keyed.store.count_all()) == (0, 0)


@given(st.text(PRINTABLE, min_size=1, max_size=255))
@example("\\" * 255)
@example('"')
@example(",")
def test_every_printable_key_can_be_written_as_a_string(key):
    assert parse_key(quoted(key)) == key
    if key == key.strip() and not key.startswith('"') and "," not in key:
        assert parse_key(key) == key


@settings(max_examples=300, deadline=2000)
@given(st.one_of(st.text(), st.binary().map(lambda raw: raw.decode("latin-1"))))
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


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


class Colour(IntEnum):
    RED = 3


GARBAGE = {
    "an empty text": "",
    "a long text": "k" * 256,
    "a very long text": "k" * 2**20,
    "a long number": 10**255,
    "a long negative number": -(10**254),
    "a number too long to write": 10**9999,
    "yes": True,
    "no": False,
    "a fraction": 1.5,
    "a list": ["a"],
    "a tuple": ("a",),
    "an object": {},
    "bytes": b"bytes",
}


class TestOtherSources:
    def test_the_setting_names_the_header_and_the_route_another(self):
        keyed = KeyedApp(settings={"IDEMPOTENCE_KEY_HEADER": "X-Request-Id"})
        keyed.add("/hook", lambda: "done", key="X-Delivery")
        for path, name in [("/", "X-Request-Id"), ("/hook", "X-Delivery")]:
            sent = {"key": None, "path": path, "headers": {name: "7"}}
            assert keyed.verdicts(sent, sent) == [200, "replay of 200"]
            assert keyed.verdicts(*[{"path": path}] * 2) == [200, 200]
        assert keyed.runs == 6

    @pytest.mark.parametrize(
        "found", ["delivery 7", 7, -7, 0, "ключ", "\0", Colour.RED, "k" * 255]
    )
    def test_a_function_finds_the_key(self, found):
        keyed = KeyedApp(key=lambda: found)
        assert keyed.verdicts(*[{"key": None}] * 2) == [200, "replay of 200"]

    def test_a_text_that_shows_itself_masked_counts_whole(self):
        class Masked(str):
            def __str__(self):
                return "****"

        found = iter([Masked("a"), Masked("b"), Masked("a")])
        keyed = KeyedApp(key=lambda: next(found))
        assert keyed.verdicts(*[{"key": None}] * 3) == [200, 200, "replay of 200"]

    def test_a_function_that_finds_none_leaves_the_request_unguarded(self):
        keyed = KeyedApp(key=lambda: None)
        assert keyed.verdicts({}, {}) == [200, 200]
        assert keyed.store.count_all() == 0

    def test_a_function_that_finds_none_lacks_a_required_key(self):
        assert KeyedApp(key=lambda: None, required=True).verdicts({}) == ["key-missing"]

    @pytest.mark.parametrize("kind", GARBAGE)
    def test_a_function_that_finds_garbage_makes_an_invalid_key(self, kind):
        keyed = KeyedApp(key=lambda: GARBAGE[kind], settings={"PROPAGATE_EXCEPTIONS": False})
        assert keyed.verdicts({}) == ["key-invalid"]
        assert (keyed.runs, keyed.store.count_all()) == (0, 0)
        assert keyed.send().json["detail"].endswith("text of 1 to 255 characters, or an integer.")

    @given(SCALARS | st.lists(SCALARS) | st.dictionaries(st.text(), SCALARS))
    def test_a_key_from_the_body_may_be_anything(self, found):
        try:
            key = key_of_value(found)
        except KeyInvalid:
            return
        assert (key is None) == (found is None)
        assert key is None or 1 <= len(key) <= 255

    def test_a_function_may_refuse_the_request_itself(self):
        keyed = KeyedApp(key=lambda: abort(403, "The signature is wrong."))
        assert keyed.verdicts({}, {}) == [403, 403]
        assert (keyed.runs, keyed.store.count_all()) == (0, 0)

    def test_a_function_may_read_the_body_which_the_view_reads_again(self):
        keyed = KeyedApp(lambda: request.json["event"], key=lambda: request.json["delivery"])
        body = {"delivery": 7, "event": "paid"}
        assert keyed.send(None, json=body).text == "paid"
        assert keyed.verdicts({"json": body}, {"json": {**body, "event": "refunded"}}) == [
            "replay of 200",
            "key-reused",
        ]


@pytest.fixture(params=["memory", "redis"])
def uri(request):
    return None if request.param == "memory" else request.getfixturevalue("redis_url")


def stored_in(keyed, server):
    """Return all that the store holds, keys and values."""
    if server is None:
        return repr(values_of(keyed.store)).encode()
    with server.client() as client:
        return b"".join(key + client.get(key) for key in client.keys("*"))


def test_the_key_itself_is_neither_stored_nor_logged(uri, caplog, request):
    server = None if uri is None else request.getfixturevalue("redis_server")
    caplog.set_level(logging.DEBUG)
    keyed = KeyedApp(lambda: {"paid": True}, uri=uri)
    keyed.add("/once", fail, on_repeat="reject", guarantee="at-most-once")
    keyed.app.config["PROPAGATE_EXCEPTIONS"] = False
    key = "raw-key-0815"
    seen = keyed.verdicts({}, {"key": quoted(key)}, {"key": quoted(key), "json": {}}, key=key)
    assert seen == [200, "replay of 200", "key-reused"]
    assert keyed.verdicts({}, {}, key=key, path="/once") == [500, "key-repeated"]
    stored = stored_in(keyed, server)
    assert stored.count(b"paid") == 1
    assert caplog.text.count("Request") == 3
    assert key not in caplog.text
    assert key.encode() not in stored
