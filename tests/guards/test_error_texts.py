"""The errors of a wrong guard: each names the argument and the remedy."""

from functools import partial
from math import inf, nan

import pytest
from flask import request
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
lock = partial(idempotence.lock, "stock")
once = partial(idempotence.once, "mail")
mail = partial(once, 1)


async def later():
    """Stand for an async function."""


class Later:
    async def __call__(self):
        """Stand for an object that is called like one."""


POSITIVE = "Must be more than 0 and at most 1,000,000,000 seconds."
NOT_NEGATIVE = "Must be 0 or more and at most 1,000,000,000 seconds."
NO_DURATION = "Must be a number of seconds or a timedelta."
NO_ASYNC = "cannot be an async function."
NO_FUNCTION = "must be callable."
NAMES = "takes a collection of names, not one string."
INSIDE = "takes names of arguments, and no dotted names: 'buyer.name'. Choose by"
FLAG = "must be True or False."
POLICY = "Must be one of 'reject', 'allow'."
HEADER = "Must be the name of a header, or a function."
SESSION = "Flask-SQLAlchemy's db.session, another scoped_session, a Session, or a function that"
DECORATORS = [idempotent, no_repeat_submit, one_time_token]

VALUES = [
    *((guard, "observe", ["yes", 1], FLAG) for guard in DECORATORS),
    *((guard, "unless", [later, Later()], NO_ASYNC) for guard in DECORATORS),
    *((guard, "on_store_error", ["retry", "", True], POLICY) for guard in DECORATORS),
    (idempotent, "required", [1], FLAG),
    (idempotent, "ttl", [0], POSITIVE),
    (idempotent, "key", ["", "X Order", "X-Key:", "Schlüssel", "X-Key\n", 7], HEADER),
    (idempotent, "key_pattern", [""], "Must be a string with a regular expression."),
    (idempotent, "ignore", ["item"], NAMES),
    (idempotent, "ignore", [b"i", [105]], "takes a collection of names, and no 105."),
    (no_repeat_submit, "only", [[None]], "takes a collection of names, and no None."),
    *(
        (guard, name, [["item", "buyer.name"]], INSIDE)
        for guard, name in (
            (idempotent, "ignore"),
            (no_repeat_submit, "ignore"),
            (no_repeat_submit, "only"),
        )
    ),
    (idempotent, "compare", [True, 0, 1, "", ["order"]], "a function or False; leave it out to"),
    (idempotent, "on_repeat", ["again", ""], "Must be one of 'replay', 'reject'."),
    (idempotent, "guarantee", ["maybe"], "Must be one of 'at-least-once', 'at-most-once'."),
    (idempotent, "remember", ["all", True], "Must be one of 'final', 'success', or a function."),
    *((idempotent, name, [later], NO_ASYNC) for name in ("key", "compare", "remember")),
    *((no_repeat_submit, name, [later], NO_ASYNC) for name in ("key", "failed")),
    *((no_repeat_submit, name, ["order", True], NO_FUNCTION) for name in ("key", "failed")),
    *((no_repeat_submit, name, ["item"], NAMES) for name in ("only", "ignore", "methods")),
    (
        no_repeat_submit,
        "methods",
        [["GETS", "FETCH", "GET"]],
        "'GET', not 'FETCH', 'GETS'. Unsafe",
    ),
    (no_repeat_submit, "methods", [[1]], "'GET', not 1. Unsafe methods are guarded anyway."),
    (no_repeat_submit, "shared", [1], FLAG),
    (
        one_time_token,
        "purpose",
        ["", "a b", "x" * 65, 1, True, b"pay", ["pay"]],
        "1 to 64 letters",
    ),
    (one_time_token, "restore_on_failure", ["false", 1, None], FLAG),
    (once, "key", [later, "order", 7], "must be a function, not an async one, that takes the"),
    (mail, "ttl", [0], POSITIVE),
    (mail, "ttl", [None], NO_DURATION),
    (lock, "lease", [0], POSITIVE),
    (
        lock,
        "lease",
        [0.4],
        "Must be 0.5 seconds or more: a shorter lease may end before its first",
    ),
    *((call, "within", ["session"], SESSION) for call in (idempotent, mail)),
]


@pytest.mark.parametrize(("call", "name", "values", "text"), VALUES)
def test_of_an_argument(call, name, values, text):
    for value in values:
        with pytest.raises(ConfigurationError) as caught:
            call(**{name: value})
        assert f"({name}=" in str(caught.value)
        assert text in str(caught.value)


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
    (partial(no_repeat_submit, key=str), "interval", NOT_NEGATIVE),
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


ALLOW, MOST = {"on_store_error": "allow"}, {"guarantee": "at-most-once"}
SHARED = "(shared=True) needs key=, a function that returns the subject of the lock"
TOGETHER = [
    (idempotent, {"compare": str, "ignore": ["item"]}, "(ignore=...) chooses from the whole"),
    (idempotent, {"compare": False, "ignore": ["item"]}, "leave one of them out."),
    (idempotent, MOST | ALLOW, "cannot be kept with on_store_error='allow': the view would run"),
    (idempotent, {"within": lambda: None, **ALLOW}, "(within=...) promises exactly once: leave"),
    (idempotent, {"within": lambda: None, **MOST}, "(within=...) promises exactly once: leave"),
    (no_repeat_submit, {"interval": 0}, "(interval=0) needs key=, a function that returns the"),
    (no_repeat_submit, {"shared": True}, SHARED),
    (no_repeat_submit, {"shared": True, "only": ["order"]}, SHARED),
    (no_repeat_submit, {"shared": True, "interval": 0}, SHARED),
    (
        no_repeat_submit,
        {"wait": 5},
        "(wait=...) needs key=: a request that waits for its turn runs",
    ),
    (once, {}, "once() takes an id, or as a decorator a function key= that returns it."),
    (mail, {"key": str}, "once() takes an id, or as a decorator a function key= that returns it."),
]


@pytest.mark.parametrize(("call", "options", "text"), TOGETHER)
def test_of_arguments_that_do_not_go_together(call, options, text):
    with pytest.raises(ConfigurationError) as caught:
        call(**options)
    assert text in str(caught.value)


BAD_SCOPES = ["", "a b", "a:b", "a*", "ä", "a\n", "a" * 65, "{a}", "a/b", None, 7, b"a"]


@pytest.mark.parametrize("scope", BAD_SCOPES)
def test_of_a_scope_and_of_the_name_of_a_step(scope):
    calls = {"once": (scope, 1), "forget": (scope, 1), "step": (scope,)}
    for name, arguments in calls.items():
        rule = rf"{name}\(scope\): must be 1 to 64 letters"
        with make_app().app_context(), pytest.raises(ConfigurationError, match=rule):
            getattr(idempotence, name)(*arguments)


def test_of_an_async_function():
    for decorate in (mail(wait=1), lock(wait=1)):
        with pytest.raises(ConfigurationError, match=r"Running, and try again after asyncio"):
            decorate(later)
    with pytest.raises(ConfigurationError, match="Give it a scopefunc that tells requests apart"):
        idempotent(within=scoped_session(sessionmaker()))(later)


@pytest.mark.parametrize("guard", DECORATORS)
def test_of_an_argument_that_there_is_not(guard):
    for name in ("intervall", "only_methods", "services"):
        with pytest.raises(TypeError, match=rf"{guard.__name__}\(\) got an .* argument '{name}'"):
            guard(on_store_error="allow", **{name: None})


TOKEN = {"key": "Idempotence-Token"}
UNGUARDED = "with on_store_error='allow' (route or setting): the view would run unguarded. Give"
ALL = "remembers every response: leave idempotent(remember=...) out, or choose guarantee="
SHORT = "takes a token for a key. Its ttl must be more than the 30 seconds by which clocks may"
AGAINST_SETTINGS = [
    (MOST, {"ON_STORE_ERROR": "allow"}, UNGUARDED),
    (ALLOW, {"KEY_GUARANTEE": "at-most-once"}, UNGUARDED),
    *((MOST | {"remember": value}, {}, ALL) for value in ("final", "success", str)),
    ({"remember": "success"}, {"KEY_GUARANTEE": "at-most-once"}, ALL),
    ({**TOKEN, "key_pattern": "a"}, {}, "for a key: leave idempotent(key_pattern=...) out."),
    ({**TOKEN, "ttl": 30}, {}, SHORT),
    (TOKEN, {"KEY_TTL": 30}, SHORT),
]


@pytest.mark.parametrize(("options", "settings", "text"), AGAINST_SETTINGS)
def test_of_an_argument_that_does_not_go_with_a_setting(options, settings, text):
    app = make_app(**{f"IDEMPOTENCE_{name}": value for name, value in settings.items()})
    app.add_url_rule("/", "pay", idempotent(**options)(lambda: "paid"), methods=["POST"])
    with pytest.raises(ConfigurationError, match="The view 'pay'") as caught:
        app.test_client().post("/")
    assert text in str(caught.value)


NAMELESS = (
    b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n"
    b"--b\r\nContent-Disposition: form-data\r\n\r\n2\r\n--b--\r\n"
)


@pytest.mark.parametrize(("guard", "name"), [(idempotent, "compare"), (no_repeat_submit, "key")])
def test_a_part_without_a_name_in_a_form_that_a_function_returns_is_400(guard, name):
    app = make_app()
    view = guard(**{name: lambda: dict(request.form)})(lambda: "done")
    app.add_url_rule("/", "pay", view, methods=["POST"])
    headers = {"Content-Type": "multipart/form-data; boundary=b", "Idempotency-Key": "k"}
    answer = app.test_client().post("/", data=NAMELESS, headers=headers)
    assert answer.status_code == 400
    assert len([*app.extensions["idempotence"].store.scan("")]) == 0


LOOP = []
LOOP.append(LOOP)


@pytest.mark.parametrize("value", [object(), {1: 2, "1": 3}, {"a": {1, 2}}, b"bytes", LOOP])
@pytest.mark.parametrize(("guard", "name"), [(idempotent, "compare"), (no_repeat_submit, "key")])
def test_of_a_function_whose_value_is_not_json(guard, name, value):
    app, runs = make_app(), []
    view = guard(**{name: lambda: value})(lambda: runs.append(1))
    app.add_url_rule("/", "pay", view, methods=["POST"])
    with pytest.raises(ConfigurationError) as caught:
        app.test_client().post("/", headers={"Idempotency-Key": "k"})
    text = f"({name}=...) of 'pay' must return a value that JSON can hold, or a UUID: "
    assert text in str(caught.value)
    assert (runs, len([*app.extensions["idempotence"].store.scan("")])) == ([], 0)
