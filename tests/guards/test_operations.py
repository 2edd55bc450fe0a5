"""One order of operations: views that run again, their steps, and guards that are hidden."""

from functools import partial, wraps

import pytest
from flask import Blueprint, Flask, copy_current_request_context, jsonify
from helpers.apps import KEY, make_app, no_answer
from helpers.once_operations import elsewhere
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from flask_idempotence import (
    ConfigurationError,
    Idempotence,
    LeaseLost,
    RepeatSubmit,
    Running,
    SqlStore,
    current_guard,
    exempt,
    idempotent,
    no_repeat_submit,
    observed,
    one_time_token,
)
from flask_idempotence.errors import StoreError

GUARDS = [no_repeat_submit(60), one_time_token(), idempotent()]


class Shop:
    def __init__(self, **settings):
        self.idempotence = Idempotence()
        self.app = make_app(idempotence=self.idempotence, **settings)
        self.app.testing = False  # errors are answers
        self.store = self.app.extensions["idempotence"].store
        self.charges = []

    def charge(self, *id_):
        with self.idempotence.step("charge", *id_) as step:
            if step.first:
                self.charges.append(step.key)
                step.result = len(self.charges)
        return step.result

    def send(self, path="/", headers=KEY, **options):
        token = self.app.test_client().get("/token").json["token"]
        headers = {**headers, "Idempotence-Token": token}
        return self.app.test_client().post(path, headers=headers, **options)


def table_of(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    store = SqlStore(engine)
    store.create_table()
    return engine, store


def retried(view, times=2):
    """Call a view again after an exception, as a retry decorator outside of a guard does."""

    def again(**arguments):
        for left in reversed(range(times)):
            try:
                return view(**arguments)
            except LookupError:
                if not left:
                    raise
        return None

    return again


@pytest.fixture
def shop():
    return Shop()


# A view that runs again under its claim


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.guard.mode)
def test_a_view_that_is_called_again_runs_under_the_claim_that_it_has(shop, guard):
    modes = []

    def view():
        modes.append(current_guard.mode)
        current_guard.ensure_held()
        if len(modes) == 1:
            raise LookupError
        return "done"

    shop.app.post("/", endpoint="view")(retried(guard(view)))
    assert shop.send().status_code == 200
    assert modes == [guard.guard.mode] * 2
    assert shop.send().status_code in (200, 409)
    assert len(modes) == 2 + (guard.guard.mode == "token")  # the second request has a new token


@pytest.mark.parametrize(
    "way", ["guarded", "observed", "store is down", "switched off", "no key", "unless"]
)
def test_the_names_of_its_steps_begin_again_and_finished_steps_give_their_results(way):
    shop = Shop(
        IDEMPOTENCE_OBSERVE=way == "observed",
        IDEMPOTENCE_ON_STORE_ERROR="allow",
        IDEMPOTENCE_ENABLED=way != "switched off",
    )
    runs = []

    def view():
        runs.append(shop.charge())
        if len(runs) < 3:
            raise LookupError
        return "done"

    if way == "store is down":
        shop.store.claim = no_answer
    guard = idempotent(unless=lambda: way == "unless")
    shop.app.post("/", endpoint="view")(retried(guard(view), 3))
    assert shop.send(headers={} if way == "no key" else KEY).status_code == 200
    assert runs == ([1, 1, 1] if way == "guarded" else [1, 2, 3])
    assert (len(set(shop.charges)) == 1) == (way in ("guarded", "observed", "store is down"))


@pytest.mark.parametrize(
    ("decide", "fails"),
    [
        (current_guard.keep, False),
        (current_guard.release, False),
        (current_guard.keep, True),  # the first run may have charged
    ],
)
def test_a_decision_of_the_run_before_holds_only_if_it_keeps(shop, decide, fails):
    runs = []

    def view():
        runs.append(1)
        if len(runs) == 1:
            decide()
        if len(runs) == 1 or fails:
            raise LookupError
        return "done"

    shop.app.post("/", endpoint="view")(retried(idempotent()(view)))
    answers = [shop.send() for _ in range(2)]
    assert [answer.status_code for answer in answers] == [500 if fails else 200] * 2
    assert len(runs) == 2


def test_a_view_that_is_called_again_is_within_what_has_begun_since(shop):
    modes = []

    def view():
        modes.append(current_guard.mode)
        if len(modes) == 1:
            raise LookupError
        return str(shop.charge())

    guarded = idempotent()(view)

    def again():
        try:
            return guarded()
        except LookupError:
            with shop.idempotence.once("second", 1):
                answer = guarded()
                modes.append(current_guard.mode)
                return answer

    shop.app.post("/", endpoint="view")(again)
    assert shop.send().text == "1"
    assert modes == ["key", "key", "once"]


def test_a_view_is_not_called_again_under_a_claim_that_is_lost(shop):
    runs = []

    def view():
        runs.append(1)
        [key] = shop.store.scan("idempotence:2:key:")
        shop.store.clear("")
        shop.store.claim(key, b"r" * 16, bytes(16), 60, 0)  # another process has it now
        with pytest.raises(LeaseLost):
            current_guard.ensure_held()
        raise LookupError

    shop.app.post("/", endpoint="view")(retried(idempotent(compare=False)(view)))
    refused = shop.send()
    assert (refused.status_code, refused.headers["Idempotence-Refusal"]) == (
        409,
        "key-in-progress",
    )
    assert len(runs) == 1


@pytest.mark.parametrize("second", ["claimed", "unguarded"])
def test_a_view_has_run_although_its_guard_refused_it_before(shop, second):
    """A decorator between two guards calls the inner one again, and the view is refused."""
    keys, runs = ["free", "taken", "taken"], []

    def view():
        runs.append(1)
        if len(runs) > 1:
            raise Running
        return "done"

    lock = no_repeat_submit(
        60,
        key=lambda: keys.pop(),  # noqa: PLW0108 - at each call
        unless=lambda: second == "unguarded" and len(keys) == 1,
    )
    locked = lock(view)

    @wraps(locked)
    def again():
        try:
            return locked()
        except RepeatSubmit:
            return locked()

    shop.app.post("/", endpoint="view")(idempotent(guarantee="at-most-once")(again))
    other = {"Idempotency-Key": "a-key-of-another-request"}
    assert shop.send().text == "done"
    assert [shop.send(headers=other).status_code for _ in range(2)] == [409, 409]
    assert len(runs) == 2


# Steps


@pytest.mark.parametrize("way", ["raises", "is refused"])
def test_a_step_that_raised_or_was_refused_may_be_tried_again_in_the_same_attempt(shop, way):
    claim, tries = shop.store.claim, []

    def refuse_first(key, *more):
        if ":step:" in key and not tries and way == "is refused":
            tries.append(1)
            raise StoreError("down")
        return claim(key, *more)

    shop.store.claim = refuse_first

    @shop.app.post("/")
    @idempotent()
    def view():
        try:
            with shop.idempotence.step("charge"):
                tries.append(1)
                raise LookupError
        except Exception:
            return str(shop.charge())

    assert shop.send().text == "1"
    assert (len(tries), len(shop.charges)) == (1, 1)


def test_a_decorator_inside_the_guard_that_calls_the_view_again_is_told_to_go_outside(shop):
    runs = []

    def view():
        runs.append(shop.charge())
        raise LookupError

    shop.app.testing = True
    shop.app.post("/", endpoint="view")(idempotent()(retried(view)))
    with pytest.raises(ConfigurationError, match="calls the view again outside its guard"):
        shop.send()
    assert runs == [1]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("guard", [no_repeat_submit(60), one_time_token(), idempotent()])
def test_a_decorator_that_calls_the_view_in_threads_is_refused(shop, guard, threads):
    """Nothing there would see the response: each would run, and none would be remembered."""
    errors = []

    def hedged(view):
        def called():
            try:
                return view()
            except ConfigurationError as error:
                errors.append(str(error))

        def hedging():
            for _ in range(threads):
                elsewhere(copy_current_request_context(called))
            return "given up", 504

        return hedging

    shop.app.post("/", endpoint="view")(hedged(guard(lambda: str(shop.charge()))))
    assert shop.send().status_code == 504
    assert ["inside the guard" in error for error in errors] == [True] * threads
    assert shop.charges == []


@pytest.mark.parametrize("nested", [False, True])
def test_a_name_of_a_step_that_runs_or_has_ended_well_is_an_error(shop, nested):
    @shop.app.post("/")
    @idempotent()
    def view():
        with shop.idempotence.step("charge"):
            if nested:
                shop.charge()
        return str(shop.charge())

    shop.app.testing = True
    with pytest.raises(ConfigurationError, match="has a step 'charge' already"):
        shop.send()


@pytest.mark.parametrize("order", ["before a step", "after a step"])
def test_a_response_is_not_kept_for_less_time_than_its_steps(shop, order):
    @shop.app.post("/")
    @idempotent(ttl=3600)
    def view():
        if order == "after a step":
            shop.charge()
        current_guard.keep(ttl=60)
        return str(shop.charge(2))

    shop.app.testing = True
    with pytest.raises(ConfigurationError, match=r"keep\(ttl=60\) is less than the 3600 seconds"):
        shop.send()


def test_an_attempt_without_steps_keeps_its_response_no_shorter_than_earlier_steps(shop):
    attempts = []

    @shop.app.post("/")
    @idempotent(ttl=3600)
    def view():
        attempts.append(1)
        if len(attempts) == 1:
            shop.charge()
            return "failed", 503
        with pytest.raises(ConfigurationError, match="those of an earlier attempt"):
            current_guard.keep(ttl=60)
        current_guard.keep(ttl=7200)
        return "done"

    answers = [shop.send() for _ in range(2)]
    assert [answer.status_code for answer in answers] == [503, 200]
    assert answers[1].headers["Idempotent-Expires-In"] == "7200"


def test_it_may_be_kept_for_longer_and_without_steps_for_less(shop):
    @shop.app.post("/<int:ttl>")
    @idempotent(ttl=3600)
    def view(ttl):
        if ttl > 60:
            shop.charge()
        current_guard.keep(ttl=ttl)
        return "done"

    times = ["60", "3600", "7200"]
    answers = [shop.send(f"/{ttl}", {"Idempotency-Key": f"key {ttl}"}) for ttl in times]
    assert [answer.headers["Idempotent-Expires-In"] for answer in answers] == times


@pytest.mark.parametrize("kind", ["key", "once"])
def test_the_key_of_a_step_is_the_same_while_the_store_is_down_under_allow(kind):
    shop = Shop(IDEMPOTENCE_ON_STORE_ERROR="allow")

    def view():
        if kind == "key":
            shop.charge()
        else:
            with shop.idempotence.once("order", 1):
                shop.charge()
        return "failed", 503

    shop.app.post("/")(idempotent()(view) if kind == "key" else view)
    claim = shop.store.claim
    shop.send()
    if kind == "once":
        with shop.app.app_context():
            shop.idempotence.forget("order", 1)
    shop.store.clear("")

    shop.store.claim = no_answer
    shop.send()
    shop.store.claim = claim
    assert len(shop.charges) == 2
    assert len(set(shop.charges)) == 1
    shop.charges.clear()
    shop.store.claim = no_answer
    shop.send(headers={})
    shop.send(headers={})
    assert len(set(shop.charges)) == (2 if kind == "key" else 1)  # without a key, nothing names it


def test_an_observed_operation_has_the_keys_of_an_enforced_one():
    keys = []
    for observe in (False, True):
        shop = Shop(IDEMPOTENCE_OBSERVE=observe)
        shop.app.post("/")(idempotent()(partial(lambda shop: str(shop.charge()), shop)))
        shop.send()
        keys += shop.charges
    assert keys[0] == keys[1]


@pytest.mark.parametrize("runs_in", [elsewhere, lambda call: call()])
def test_a_copy_of_the_request_that_ends_earlier_ends_nothing_of_it(shop, runs_in):
    """Neither an observed claim, nor what makes the request an operation of its own."""
    reasons, modes = [], []
    observed.connect(lambda _, reason, **__: reasons.append(reason), shop.app, weak=False)

    @shop.app.post("/")
    @idempotent(observe=True)
    def view():
        runs_in(copy_current_request_context(lambda: None))
        with shop.app.test_request_context("/"):
            modes.append(current_guard.mode)
        return "done"

    with shop.app.app_context(), shop.idempotence.once("all", 1):
        assert [shop.send().status_code for _ in range(2)] == [200, 200]
        assert current_guard.mode == "once"
    assert (reasons, modes) == (["replay"], [None, None])


# Decisions after the view


# Guards that placement cannot see


def without_wraps(view):
    def inner(**arguments):
        return view(**arguments)

    return inner


class LazyView:
    """As in Flask's documentation, but without an import."""

    def __init__(self, load):
        self.load = load
        self.__name__ = "view"

    def __call__(self, **arguments):
        return self.load()(**arguments)


def hidden(how, view):
    return without_wraps(view) if how == "without wraps" else LazyView(lambda: view)


@pytest.mark.parametrize("how", ["without wraps", "lazy"])
@pytest.mark.parametrize("by", ["IDEMPOTENCE_KEY_ALL_ROUTES", "the Blueprint 'shop'"])
@pytest.mark.parametrize(
    "own",
    [
        {"guarantee": "at-most-once"},
        {"compare": False},
        {"on_repeat": "reject"},
        {"remember": "success"},
    ],
)
def test_a_hidden_guard_with_other_rules_answers_500_and_says_how_to_show_it(caplog, how, by, own):
    shop = Shop(IDEMPOTENCE_KEY_ALL_ROUTES=by.isupper() or "KEY" in by)
    charges = []
    view = hidden(how, idempotent(**own)(lambda: charges.append(1) or ("failed", 500)))
    blueprint = Blueprint("shop", __name__)
    if "Blueprint" in by:
        idempotent()(blueprint)
    blueprint.add_url_rule("/", "view", view, methods=["POST"])
    shop.app.register_blueprint(blueprint)
    assert [shop.send().status_code for _ in range(2)] == [500, 500]
    assert charges == []
    assert by in caplog.text
    for word in (*own, "functools.wraps", "exempt", "'shop.view'"):
        assert word in caplog.text
    assert list(shop.store.scan("idempotence:2:key:")) == []  # nothing is remembered of it


def test_a_hidden_guard_within_a_transaction_answers_500_too(tmp_path, caplog):
    engine, store = table_of(tmp_path)
    shop, charges = Shop(store=store, IDEMPOTENCE_KEY_ALL_ROUTES=True), []
    session = Session(engine)
    own = idempotent(within=lambda: session)(lambda: charges.append(1) or "paid")
    shop.app.add_url_rule("/", "view", without_wraps(own), methods=["POST"])
    assert [shop.send().status_code for _ in range(2)] == [500, 500]
    assert charges == []
    assert "with another within." in caplog.text
    assert list(store.scan("idempotence:2:key:")) == []


@pytest.mark.parametrize("how", ["without wraps", "lazy"])
def test_a_hidden_guard_with_the_same_rules_goes_on(how):
    shop = Shop(IDEMPOTENCE_KEY_ALL_ROUTES=True)
    shop.app.add_url_rule("/", "view", hidden(how, idempotent()(lambda: "done")), methods=["POST"])
    assert [shop.send().status_code for _ in range(2)] == [200, 200]


def test_what_is_registered_can_be_exempt_and_the_hidden_guard_guards():
    shop, charges = Shop(IDEMPOTENCE_KEY_ALL_ROUTES=True), []
    own = idempotent(guarantee="at-most-once")(lambda: charges.append(1) or ("failed", 500))
    shop.app.add_url_rule("/", "view", exempt(LazyView(lambda: own)), methods=["POST"])
    assert [shop.send().status_code for _ in range(2)] == [500, 500]
    assert charges == [1]


def test_a_guarded_view_that_calls_another_one_goes_on():
    shop = Shop(IDEMPOTENCE_KEY_ALL_ROUTES=True)
    other = shop.app.post("/other")(idempotent(guarantee="at-most-once")(lambda: "done"))
    shop.app.post("/", endpoint="view")(lambda: [other()][0])
    assert [shop.send().status_code for _ in range(2)] == [200, 200]


# What exempt takes


class Views:
    def pay(self):
        return "paid"


@pytest.mark.parametrize(
    "view", [Views().pay, partial(lambda: "paid"), LazyView(lambda: lambda: "paid"), "".upper]
)
def test_exempt_takes_what_a_guard_takes(view):
    shop = Shop(IDEMPOTENCE_KEY_ALL_ROUTES=True, IDEMPOTENCE_KEY_REQUIRED=True)
    assert exempt(view) is view
    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    shop.app.add_url_rule("/guarded", "guarded", Views().pay, methods=["POST"])
    assert shop.send(headers={}).status_code == 200
    assert shop.send("/guarded", headers={}).status_code == 400


# `Idempotent-Expires-In`


@pytest.mark.parametrize(
    ("options", "body", "has_header"),
    [({}, "paid", True), ({"on_repeat": "reject"}, "paid", False), ({}, "x" * 101, False)],
)
def test_the_time_is_on_answers_that_a_repeat_gets(options, body, has_header):
    shop = Shop(IDEMPOTENCE_KEY_MAX_BODY=100)
    shop.app.post("/")(idempotent(**options)(lambda: body))
    first, second = shop.send(), shop.send()
    assert ("Idempotent-Expires-In" in first.headers) == has_header
    assert ("Idempotent-Replayed" in second.headers) == has_header


def test_an_error_page_after_the_record_has_no_time_of_another_answer(tmp_path):
    engine, store = table_of(tmp_path)
    app = Flask("shop")
    app.secret_key = "a secret for the tests"
    Idempotence(app, store=store)
    session = Session(engine)
    app.post("/")(idempotent(within=lambda: session)(lambda: jsonify(paid=True)))
    late = []

    @app.after_request
    def fail(response):
        if not late:
            late.append(1)
            with pytest.raises(ConfigurationError, match="too late"):
                current_guard.release()
            raise LookupError
        return response

    answers = [app.test_client().post("/", headers=KEY) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [500, 200]
    assert ["Idempotent-Expires-In" in answer.headers for answer in answers] == [False, True]
