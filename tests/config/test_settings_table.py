"""Every setting by every kind of value: its normal form, or the error with what is allowed."""

import logging
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet

from flask_idempotence import ConfigurationError
from flask_idempotence.config.runtime import read_config
from flask_idempotence.config.settings import KEY_IN_PROGRESS, KEY_REUSED, SETTINGS
from flask_idempotence.errors import SLUGS


class Lazy:
    def __str__(self):
        return "later"


LAZY, MINUTE = Lazy(), timedelta(minutes=1)
KINDS = {
    **{repr(each): each for each in (None, True, 0, 1, -1, 0.25, 2.5, 99_999_999_999)},
    **{repr(each): each for each in (float("nan"), float("inf"), MINUTE, -MINUTE)},
    **{repr(each): each for each in ("", " ", "false", "hunter2", "hunter2 hunter2", "\ud800")},
    **{repr(each): each for each in (b"hunter2", b"hunter2-hunter2-hunter2")},
    **{repr(each): each for each in ([], ["hunter2"], ("hunter2",), [1], ["*"], {"hunter2"})},
    **{repr(each): each for each in ({}, {"a": "hunter2"}, {1: "hunter2"})},
    "object()": object(),
    "a lazy text": LAZY,
}
NULL = "Field may not be null."

NUMBERS = {"-1", "0", "99999999999", "nan", "inf", repr(-MINUTE)}
SECONDS = "Must be a number of seconds or a timedelta."
RANGE = "Must be more than 0 and at most 1,000,000,000 seconds."
DURATION = {"0.25": 0.25, "1": 1.0, "2.5": 2.5, repr(MINUTE): 60.0}
NAMES = "Must be a list or tuple of strings."
LISTED = {"[]": (), "['hunter2']": ("hunter2",), "('hunter2',)": ("hunter2",)}
WORDS = {"'false'": "false", "'hunter2'": "hunter2"}
SPACED = {**WORDS, "'hunter2 hunter2'": "hunter2 hunter2", "' '": " ", "b'hunter2'": "hunter2"}
SPACED |= {"b'hunter2-hunter2-hunter2'": "hunter2-hunter2-hunter2"}
PATH = "Must be a plain path that begins with '/', without '//', '<', '?', '#' and '%', or None."
HEADER = "Must be the name of a header."
LEVELS = "CRITICAL, FATAL, ERROR, WARN, WARNING, INFO, DEBUG, NOTSET"
NO_URI = (
    "is not a URI. Set the environment variable that it comes from, or leave the setting out for "
    "the memory of this process."
)
TEXT = "Must be a text: a string that is not blank, or a lazy one with a str() of its own."
FERNET = (
    "Must be a list or tuple of keys, newest first, each made by "
    "cryptography.fernet.Fernet.generate_key()."
)


def one_of(*choices):
    return f"Must be one of {', '.join(map(repr, choices))}."


def some_of(*choices):
    refused = f"May only hold {', '.join(map(repr, choices))}."
    return {each: Error(refused) for each in ("['hunter2']", "('hunter2',)", "['*']")}


class Error(str):
    """The text of an error, after the name of the setting."""


def numbers(text, zero=None):
    return {each: Error(text) for each in NUMBERS} | ({} if zero is None else {"0": zero})


MAPPING = "Not a valid mapping type."
STATUSES = one_of("repeat-submit", "token-spent", "key-repeated", KEY_IN_PROGRESS, KEY_REUSED)
INTEGER = "Not a valid integer."
LOW = "A status must be from 200 to 599."
REUSED = "Must be the status of an error, from 400 to 599."
SHORT = (
    "Must be 0.5 seconds or more: a shorter lease may end before its first renewal has been "
    "answered."
)
BOOLEANS = "enabled observe identity_host token_enabled lock_enabled key_enabled key_required"
FLAG = {"True": True, "1": True, "0": False, "'false'": False}
TABLE = [
    (f"{BOOLEANS} key_all_routes", "Not a valid boolean.", FLAG),
    (
        "storage_uri",
        "Must be a string, such as redis://localhost:6379/0. Pass a client or a store of your own "
        "as Idempotence(app, store=...).",
        {
            **{each: SPACED[each] for each in SPACED if each[0] == "'" and each != "' '"},
            **dict.fromkeys(("''", "' '"), Error(f"An empty string {NO_URI}")),
            "None": Error(f"None {NO_URI}"),
            r"'\ud800'": "\ud800",
        },
    ),
    (
        "storage_options",
        MAPPING,
        {
            "{}": {},
            "{'a': 'hunter2'}": {"a": "hunter2"},
            "{1: 'hunter2'}": Error("1: Not a valid string."),
        },
    ),
    (
        "prefix",
        "Must consist of letters, digits, '_', '.' and '-'.",
        {
            **WORDS,
            "b'hunter2'": "hunter2",
            repr(b"hunter2-hunter2-hunter2"): "hunter2-" * 2 + "hunter2",
        },
    ),
    ("on_store_error", one_of("reject", "allow"), {}),
    (
        "identity",
        NAMES,
        {"[]": (), **some_of("user", "session", "authorization", "credentials", "ip")},
    ),
    ("identity_session_keys ignored_args", NAMES, {**LISTED, "['*']": ("*",)}),
    (
        "identity_headers",
        NAMES,
        {**LISTED, "['*']": Error("Must hold names of headers, without wildcards.")},
    ),
    (
        "identity_cookies",
        NAMES,
        {**LISTED, "['*']": Error("Must hold names of cookies; * stands for anything.")},
    ),
    (
        "hash_key",
        "Must be a string or bytes, 16 characters or more.",
        {"None": None, repr(b"hunter2-hunter2-hunter2"): b"hunter2-hunter2-hunter2"},
    ),
    (
        "messages",
        MAPPING,
        {
            "{}": {},
            "{'a': 'hunter2'}": Error(f"'a': {one_of(*SLUGS)}"),
            "{1: 'hunter2'}": Error(f"1: {one_of(*SLUGS)}"),
        },
    ),
    (
        "duplicate_status",
        INTEGER,
        {
            **dict.fromkeys(("-1", "0", "1", "99999999999"), Error(LOW)),
            "{}": {},
            "{'a': 'hunter2'}": Error(f"'a': {STATUSES} 'a': {INTEGER}"),
            "{1: 'hunter2'}": Error(f"1: {STATUSES} 1: {INTEGER}"),
        },
    ),
    ("problem_base", "Not a valid string.", {**SPACED, "''": "", r"'\ud800'": "\ud800"}),
    (
        "repeat_log_level",
        f"Must be the name of a level ({LEVELS}), or its number.",
        {"0": 0, "1": 1, "99999999999": 99_999_999_999},
    ),
    ("lease", SECONDS, {**numbers(RANGE), **DURATION, "0.25": Error(SHORT)}),
    ("max_hold token_ttl lock_interval key_ttl", SECONDS, {**numbers(RANGE), **DURATION}),
    ("key_wait", SECONDS, {**numbers(RANGE.replace("more than 0", "0 or more"), 0.0), **DURATION}),
    ("token_url", PATH, {"None": None}),
    ("ip_header", HEADER, {"None": None}),
    ("token_header key_header", HEADER, {}),
    ("token_field", "Must be the name of a form field.", SPACED),
    (
        "lock_message",
        TEXT,
        {
            **{each: SPACED[each] for each in SPACED if each[:2] in ("'f", "'h")},
            "a lazy text": LAZY,
            repr(MINUTE): MINUTE,
            repr(-MINUTE): -MINUTE,
        },
    ),
    (
        "key_pattern",
        "Must be a string with a regular expression.",
        {
            **{each: SPACED[each] for each in SPACED if each[0] == "'"},
            "None": None,
            r"'\ud800'": "\ud800",
        },
    ),
    ("key_methods", NAMES, {"[]": (), **some_of("POST", "PUT", "PATCH", "DELETE")}),
    ("key_on_repeat", one_of("replay", "reject"), {}),
    ("key_guarantee", one_of("at-least-once", "at-most-once"), {}),
    ("key_remember", one_of("final", "success"), {}),
    (
        "key_max_body",
        INTEGER,
        {
            "0": 0,
            "1": 1,
            "99999999999": 99_999_999_999,
            "-1": Error("Must be greater than or equal to 0."),
        },
    ),
    ("key_encryption_keys", FERNET, {"[]": ()}),
]
"""Settings, the error for most kinds, and what the other kinds become."""


def outcome(name, value):
    """Return what a setting becomes, or the error without its name."""
    setting = f"IDEMPOTENCE_{name.upper()}"
    try:
        config = read_config(
            {"IDEMPOTENCE_LEASE": 0.5, "IDEMPOTENCE_MAX_HOLD": 10**9} | {setting: value}
        )
    except ConfigurationError as error:
        has_cause = error.__cause__ or not (
            error.__suppress_context__ or error.__context__ is None
        )
        assert not has_cause
        return Error(str(error).removeprefix(f"{setting}: "))
    return getattr(config, name)


@pytest.mark.parametrize("name", [field.name for field in SETTINGS.values()])
def test_a_setting_takes_a_kind_of_value_or_says_what_is_allowed(name):
    [(text, others)] = [row[1:] for row in TABLE if name in row[0].split()]
    if text is HEADER:
        others = {**WORDS, "b'hunter2'": "hunter2", **others}
        others[repr(b"hunter2-hunter2-hunter2")] = "hunter2-hunter2-hunter2"
    expected = {kind: others.get(kind, Error(NULL if kind == "None" else text)) for kind in KINDS}
    if name == "max_hold":
        expected["0.25"] = Error("IDEMPOTENCE_MAX_HOLD must not be less than IDEMPOTENCE_LEASE.")
    found = {kind: outcome(name, value) for kind, value in KINDS.items()}
    assert {
        kind: found[kind]
        for kind in KINDS
        if (type(found[kind]), found[kind]) != (type(expected[kind]), expected[kind])
    } == {}
    assert [each for each in found.values() if type(each) is Error and "hunter2" in each] == []


KEY = Fernet.generate_key()
ONES_OWN = [
    *(("token_url", url, Error(PATH)) for url in ("//token", "/a//b", "/t?a=b", "/<n>", "/a%20")),
    *(("token_url", url, Error(PATH)) for url in ("/a b", "/\ud800", "/a\n", "/#a", "a/b")),
    *(("token_url", url, url) for url in ("/", "/once/ticket", "/令牌")),
    *(("prefix", prefix, prefix) for prefix in ("a", "shop-1.2_b")),
    *(
        ("prefix", prefix, Error("Must consist of letters, digits, '_', '.' and '-'."))
        for prefix in ("a:", "a\n", "ä")
    ),
    ("identity_headers", ["X-A", "a_b"], ("X-A", "a_b")),
    ("identity_headers", ["X-*"], Error("Must hold names of headers, without wildcards.")),
    ("identity_cookies", ["*jwt*", "a.b"], ("*jwt*", "a.b")),
    *(
        ("identity_cookies", [bad], Error("Must hold names of cookies; * stands for anything."))
        for bad in ("", "**", "a b", "ä")
    ),
    ("hash_key", "0123456789abcdef", b"0123456789abcdef"),
    ("hash_key", "0123456789abcde", Error("Must be a string or bytes, 16 characters or more.")),
    ("hash_key", 16 * "\ud800", Error("Must be a string or bytes, 16 characters or more.")),
    *(("lease", seconds, seconds) for seconds in (0.5, 1_000_000_000.0)),
    ("key_wait", 1_000_000_000.5, Error(RANGE.replace("more than 0", "0 or more"))),
    *(("duplicate_status", status, status) for status in (200, 599)),
    *(("duplicate_status", status, Error(LOW)) for status in (199, 600)),
    ("duplicate_status", {KEY_IN_PROGRESS: 425}, {KEY_IN_PROGRESS: 425}),
    ("duplicate_status", {KEY_REUSED: 400}, {KEY_REUSED: 400}),
    ("duplicate_status", {KEY_REUSED: 399}, Error(f"'key-reused': {REUSED}")),
    ("duplicate_status", {"key-missing": 400}, Error(f"'key-missing': {STATUSES}")),
    ("duplicate_status", {"token-spent": "201"}, Error(f"'token-spent': {INTEGER}")),
    ("duplicate_status", {"token-spent": 600}, Error(f"'token-spent': {LOW}")),
    ("messages", {"token-spend": "No."}, Error(f"'token-spend': {one_of(*SLUGS)}")),
    ("messages", {"token-spent": None}, Error(f"'token-spent': {NULL}")),
    (
        "messages",
        {"token-spent": "再试", "key-reused": LAZY},
        {"token-spent": "再试", "key-reused": LAZY},
    ),
    *(
        ("messages", {"token-spent": bad}, Error(f"'token-spent': {TEXT}"))
        for bad in ("", " ", "\ud800", b"text", bytearray(b"text"), 7, ["text"], object)
    ),
    *(("repeat_log_level", level, level.upper()) for level in ("debug", "WARNING")),
    ("key_pattern", "[0-9a-f]+", "[0-9a-f]+"),
    (
        "key_pattern",
        "[",
        Error("'[' is no regular expression: unterminated character set at position 0."),
    ),
    *(("key_encryption_keys", keys, (KEY,)) for keys in ([KEY], (KEY.decode(),))),
    *(
        ("key_encryption_keys", keys, Error(FERNET))
        for keys in ([KEY[:-4]], [KEY, ""], [KEY, None])
    ),
    ("token_field", "a\x1f", Error("Must be the name of a form field.")),
    ("token_header", "X Y", Error(HEADER)),
    *((name, "text/plain", Error(HEADER)) for name in ("token_header", "key_header", "ip_header")),
    ("identity", ["ip", "user"], ("ip", "user")),
    ("key_methods", ("DELETE", "POST"), ("DELETE", "POST")),
]
"""Values of one setting alone."""


@pytest.mark.parametrize(("name", "value", "expected"), ONES_OWN)
def test_a_setting_has_its_own_limits(name, value, expected):
    found = outcome(name, value)
    assert (type(found), found) == (type(expected), expected)


AT_MOST_ONCE = "IDEMPOTENCE_KEY_GUARANTEE is 'at-most-once', which "
TOGETHER = {
    "cannot be kept while IDEMPOTENCE_ON_STORE_ERROR is 'allow': the view would run unguarded. "
    "Set it to 'reject', and give the routes of locks and tokens on_store_error='allow'.": {
        "ON_STORE_ERROR": "allow"
    },
    "remembers every response: leave IDEMPOTENCE_KEY_REMEMBER out.": {"KEY_REMEMBER": "success"},
}


@pytest.mark.parametrize("text", TOGETHER)
def test_settings_that_exclude_each_other_name_both(text):
    settings = {f"IDEMPOTENCE_{name}": value for name, value in TOGETHER[text].items()}
    read_config(settings)
    with pytest.raises(ConfigurationError) as raised:
        read_config(settings | {"IDEMPOTENCE_KEY_GUARANTEE": "at-most-once"})
    assert str(raised.value) == AT_MOST_ONCE + text


def test_statuses_and_levels_have_one_form():
    config = read_config({})
    assert (config.statuses, config.repeat_level) == (
        {"repeat-submit": 409, "token-spent": 409, "key-repeated": 409},
        logging.INFO,
    )
    config = read_config(
        {"IDEMPOTENCE_DUPLICATE_STATUS": {"token-spent": 200}, "IDEMPOTENCE_REPEAT_LOG_LEVEL": 7}
    )
    assert (config.statuses, config.repeat_level) == ({"token-spent": 200}, 7)


def test_secrets_are_not_in_the_repr_of_the_settings():
    names = ("STORAGE_URI", "HASH_KEY", "KEY_ENCRYPTION_KEYS", "STORAGE_OPTIONS")
    values = ("redis://:hunter2@h", "hunter2-hunter2-hunter2", [KEY], {"password": "hunter2"})
    shown = repr(read_config({f"IDEMPOTENCE_{n}": v for n, v in zip(names, values, strict=True)}))
    assert "hunter2" not in shown
    assert KEY.decode() not in shown
