"""The errors of a wrong guard, as whole texts: each names the argument and the remedy."""

from functools import partial
from math import inf, nan

import pytest
from helpers.apps import make_app
from sqlalchemy.orm import scoped_session, sessionmaker

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    idempotent,
    no_repeat_submit,
    one_time_token,
)

idempotence = Idempotence()


def lock(**options):
    return idempotence.lock("stock", **options)


def once(scope="mail", *id_, **options):
    return idempotence.once(scope, *id_, **options)


def mail(**options):
    return idempotence.once("mail", 1, **options)


async def later():
    """Stand for an async function."""


POSITIVE = "Must be more than 0 and at most 1,000,000,000 seconds."
NOT_NEGATIVE = "Must be 0 or more and at most 1,000,000,000 seconds."
NO_DURATION = "Must be a number of seconds or a timedelta."
NO_SESSION = (
    "takes the session in which the view writes: Flask-SQLAlchemy's db.session, another "
    "scoped_session, a Session, or a function that returns the view's own; not str."
)
POLICY = "(on_store_error=...): Must be one of 'reject', 'allow'."
NAMES = "takes a collection of names, not one string."
WHOLE_REQUEST = "chooses from the whole request, which compare= replaces: leave one of them out."
NO_ASYNC = "cannot be an async function."

BAD_SCOPES = ["", "a b", "a:b", "a*", "ä", "a\n", "a" * 65, "{a}", "a/b", None, 7, b"a"]

ARGUMENTS = [
    (idempotent, {"required": 1}, "idempotent(required=...) must be True or False."),
    (idempotent, {"ttl": 0}, f"idempotent(ttl=...): {POSITIVE}"),
    *(
        (
            idempotent,
            {"key": name},
            "idempotent(key=...): Must be the name of a header, or a function.",
        )
        for name in ("", "X Order", "X-Key:", "Schlüssel", "X-Key\n", 7)
    ),
    (idempotent, {"key": later}, f"idempotent(key=...) {NO_ASYNC}"),
    (
        idempotent,
        {"key_pattern": ""},
        "idempotent(key_pattern=...): Must be a string with a regular expression.",
    ),
    (idempotent, {"ignore": "item"}, f"idempotent(ignore=...) {NAMES}"),
    *(
        (
            idempotent,
            {"compare": value},
            "idempotent(compare=...) must be a function or False; leave it out to compare the "
            "whole request.",
        )
        for value in (True, 0, 1, "", ["order"])
    ),
    (idempotent, {"compare": later}, f"idempotent(compare=...) {NO_ASYNC}"),
    *(
        (
            idempotent,
            {"compare": compare, "ignore": ["item"]},
            f"idempotent(ignore=...) {WHOLE_REQUEST}",
        )
        for compare in (str, False)
    ),
    *(
        (
            idempotent,
            {"on_repeat": value},
            "idempotent(on_repeat=...): Must be one of 'replay', 'reject'.",
        )
        for value in ("again", "")
    ),
    (
        idempotent,
        {"guarantee": "maybe"},
        "idempotent(guarantee=...): Must be one of 'at-least-once', 'at-most-once'.",
    ),
    *(
        (
            idempotent,
            {"remember": value},
            "idempotent(remember=...): Must be one of 'final', 'success', or a function.",
        )
        for value in ("all", True)
    ),
    (idempotent, {"remember": later}, f"idempotent(remember=...) {NO_ASYNC}"),
    (idempotent, {"on_store_error": "retry"}, f"idempotent{POLICY}"),
    (
        idempotent,
        {"guarantee": "at-most-once", "on_store_error": "allow"},
        "idempotent(guarantee='at-most-once') cannot be kept with on_store_error='allow': the "
        "view would run unguarded. Leave one of them out.",
    ),
    *(
        (
            idempotent,
            {"within": lambda: None, **options},
            "idempotent(within=...) promises exactly once: leave guarantee= out, and "
            "on_store_error='allow'.",
        )
        for options in ({"guarantee": "at-least-once"}, {"on_store_error": "allow"})
    ),
    (idempotent, {"within": "session"}, f"idempotent(within=...) {NO_SESSION}"),
    (
        no_repeat_submit,
        {"interval": 0},
        "no_repeat_submit(interval=0) needs key=, a function that returns the subject of the "
        "lock. Without it, a repeat is a double click: give an interval in seconds.",
    ),
    (
        no_repeat_submit,
        {"interval": -1, "key": str},
        f"no_repeat_submit(interval=...): {NOT_NEGATIVE}",
    ),
    (no_repeat_submit, {"only": "item"}, f"no_repeat_submit(only=...) {NAMES}"),
    (no_repeat_submit, {"ignore": "item"}, f"no_repeat_submit(ignore=...) {NAMES}"),
    (no_repeat_submit, {"key": "order"}, "no_repeat_submit(key=...) must be callable."),
    (no_repeat_submit, {"key": later}, f"no_repeat_submit(key=...) {NO_ASYNC}"),
    (no_repeat_submit, {"failed": True}, "no_repeat_submit(failed=...) must be callable."),
    (no_repeat_submit, {"failed": later}, f"no_repeat_submit(failed=...) {NO_ASYNC}"),
    (no_repeat_submit, {"shared": 1}, "no_repeat_submit(shared=...) must be True or False."),
    *(
        (
            no_repeat_submit,
            {"shared": True, **options},
            "no_repeat_submit(shared=True) needs key=, a function that returns the subject of the "
            "lock, such as an order's id: without it, one sender could lock out all others.",
        )
        for options in ({}, {"only": ["order"]}, {"interval": 0})
    ),
    (
        no_repeat_submit,
        {"wait": 5},
        "no_repeat_submit(wait=...) needs key=: a request that waits for its turn runs, and so "
        "would the second of a double click.",
    ),
    (no_repeat_submit, {"methods": "GET"}, f"no_repeat_submit(methods=...) {NAMES}"),
    *(
        (
            no_repeat_submit,
            {"methods": methods},
            f"no_repeat_submit(methods=...) takes safe methods, such as 'GET', not {wrong}. "
            "Unsafe methods are guarded anyway.",
        )
        for methods, wrong in ((["GETS", "FETCH", "GET"], "'FETCH', 'GETS'"), ([1], "1"))
    ),
    *(
        (no_repeat_submit, {"on_store_error": value}, f"no_repeat_submit{POLICY}")
        for value in ("retry", "", True)
    ),
    *(
        (
            one_time_token,
            {"purpose": purpose},
            f"one_time_token(purpose={purpose!r}): A token's purpose is 1 to 64 letters, digits, "
            "'_', '.' and '-'.",
        )
        for purpose in ("", "a b", "x" * 65, 1, True, b"pay", ["pay"])
    ),
    (one_time_token, {"on_store_error": "retry"}, f"one_time_token{POLICY}"),
    *(
        (
            one_time_token,
            {"restore_on_failure": value},
            "one_time_token(restore_on_failure=...) must be True or False.",
        )
        for value in ("false", 1, None)
    ),
    *(
        (
            once,
            {"scope": scope},
            "once(scope): must be 1 to 64 letters, digits, '_', '.' and '-'.",
        )
        for scope in BAD_SCOPES
    ),
    *(
        (call, {}, "once() takes an id, or as a decorator a function key= that returns it.")
        for call in (once, partial(mail, key=str))
    ),
    *(
        (
            once,
            {"key": key},
            "once(key=...) must be a function, not an async one, that takes the arguments of the "
            "decorated function and returns the id.",
        )
        for key in (later, "order", 7)
    ),
    (mail, {"ttl": 0}, f"once(ttl=...): {POSITIVE}"),
    (mail, {"ttl": None}, f"once(ttl=...): {NO_DURATION}"),
    (mail, {"within": "session"}, f"once(within=...) {NO_SESSION}"),
    (lock, {"lease": 0}, f"lock(lease=...): {POSITIVE}"),
    (
        lock,
        {"lease": 0.4},
        "lock(lease=...): Must be 0.5 seconds or more: a shorter lease may end before its first "
        "renewal has been answered.",
    ),
    *(
        (
            lambda name=name, make=make: make(wait=1)(later),
            {},
            f"{name}(wait=...) would block the event loop of an async function. Leave it out, "
            "catch Running, and try again after asyncio.sleep().",
        )
        for name, make in (("once", mail), ("lock", lock))
    ),
    (
        lambda: idempotent(within=scoped_session(sessionmaker()))(later),
        {},
        "idempotent(within=...): an async view runs in a thread of its own, where this "
        "scoped_session is another session, which is never committed. Give it a scopefunc that "
        "tells requests apart, as Flask-SQLAlchemy does, or pass a function that returns the "
        "view's session.",
    ),
]


NO_DURATIONS = {
    "5": NO_DURATION,
    b"5": NO_DURATION,
    True: NO_DURATION,
    nan: None,
    inf: None,
    1e15: None,
    -1: None,
}
DURATIONS = [
    (idempotent, "ttl", POSITIVE),
    (idempotent, "wait", NOT_NEGATIVE),
    (no_repeat_submit, "interval", POSITIVE),
    (partial(no_repeat_submit, key=str), "wait", NOT_NEGATIVE),
    (mail, "ttl", POSITIVE),
    (mail, "wait", NOT_NEGATIVE),
    (lock, "lease", POSITIVE),
    (lock, "wait", NOT_NEGATIVE),
]


@pytest.mark.parametrize(("call", "name", "range_"), DURATIONS)
def test_of_a_duration(call, name, range_):
    for value, text in NO_DURATIONS.items():
        with pytest.raises(ConfigurationError) as caught:
            call(**{name: value})
        assert str(caught.value).endswith(f"({name}=...): {text or range_}")


@pytest.mark.parametrize(("call", "options", "text"), ARGUMENTS)
def test_of_an_argument(call, options, text):
    with pytest.raises(ConfigurationError) as caught:
        call(**options)
    assert str(caught.value) == text


@pytest.mark.parametrize("guard", [idempotent, no_repeat_submit, one_time_token])
def test_of_an_argument_that_there_is_not(guard):
    for name in ("intervall", "only_methods", "services"):
        with pytest.raises(TypeError) as caught:
            guard(on_store_error="allow", **{name: None})
        decorator = guard.__name__
        assert str(caught.value) == f"{decorator}() got an unexpected keyword argument {name!r}"


TOKEN, MOST = {"key": "Idempotence-Token"}, {"guarantee": "at-most-once"}
AGAINST_SETTINGS = [
    *(
        (
            options,
            settings,
            "is guarded at-most-once, which cannot be kept with on_store_error='allow' (route or "
            "setting): the view would run unguarded. Give the route on_store_error='reject', or "
            "choose guarantee='at-least-once'.",
        )
        for options, settings in (
            (MOST, {"ON_STORE_ERROR": "allow"}),
            ({"on_store_error": "allow"}, {"KEY_GUARANTEE": "at-most-once"}),
        )
    ),
    *(
        (
            {"remember": remember, **options},
            settings,
            "is guarded at-most-once, which remembers every response: leave "
            "idempotent(remember=...) out, or choose guarantee='at-least-once'.",
        )
        for remember in ("final", "success", str)
        for options, settings in (({}, {"KEY_GUARANTEE": "at-most-once"}), (MOST, {}))
    ),
    (
        {**TOKEN, "key_pattern": "a"},
        {},
        "takes a token of this application for a key: leave idempotent(key_pattern=...) out.",
    ),
    *(
        (
            TOKEN | options,
            settings,
            "takes a token for a key. Its ttl must be more than the 30 seconds by which clocks "
            "may differ.",
        )
        for options, settings in (({"ttl": 30}, {}), ({}, {"KEY_TTL": 30}))
    ),
]


@pytest.mark.parametrize(("options", "settings", "text"), AGAINST_SETTINGS)
def test_of_an_argument_that_does_not_go_with_a_setting(options, settings, text):
    named = {f"IDEMPOTENCE_{name}": value for name, value in settings.items()}
    app = make_app(**named)
    app.add_url_rule("/", "pay", idempotent(**options)(lambda: "paid"), methods=["POST"])
    with pytest.raises(ConfigurationError) as caught:
        app.test_client().post("/")
    assert f"The view 'pay' {text}" in str(caught.value)


@pytest.mark.parametrize(
    ("guard", "argument"),
    [
        (idempotent(compare=set), "idempotent(compare=...)"),
        (no_repeat_submit(key=set), "no_repeat_submit(key=...)"),
    ],
)
def test_of_a_function_whose_value_is_not_json(guard, argument):
    app = make_app()
    app.add_url_rule("/", "pay", guard(lambda: "paid"), methods=["POST"])
    with pytest.raises(ConfigurationError) as caught:
        app.test_client().post("/", headers={"Idempotency-Key": "k"})
    begin = f"{argument} of 'pay' must return a value that JSON can hold: "
    assert str(caught.value).startswith(begin)
