"""The Observe mode: guards count what they would have done, and answers stay the view's own."""

import io
import logging
import re
import sqlite3
import threading
import time
from functools import partial

import pytest
from flask import Blueprint, Response, abort, render_template_string, request
from helpers.apps import DECORATORS, KEY, bare_app, make_app
from helpers.every_store import storage_settings
from helpers.request_bodies import BYTES, FORM, app_with, send
from helpers.servers.processes import all_at_once
from prometheus_client import CollectorRegistry
from werkzeug.exceptions import ClientDisconnected

from flask_idempotence import (
    Idempotence,
    MemoryStore,
    StoreError,
    current_guard,
    idempotent,
    no_repeat_submit,
    observed,
    one_time_token,
)
from flask_idempotence.engine import observing
from flask_idempotence.metrics import Metrics
from flask_idempotence.request.body import IN_MEMORY
from flask_idempotence.testing import FakeClock

MODES = pytest.mark.parametrize("mode", DECORATORS)
STORES = pytest.mark.parametrize("store", ["memory", "redis", "sqlite"])


@pytest.fixture(autouse=True)
def time_of_a_busy_machine(request, monkeypatch):
    if "tenth_of_a_second" not in request.node.name:
        monkeypatch.setattr(observing, "OBSERVED_SECONDS", 30)


def echo():
    """Answer with all that a view sees of its body, and count."""
    return Response(request.get_data() + b"|%d" % len(request.form), headers={"X-Own": "1"})


def reasons_of(app):
    """Return a list that grows by the mode and the reason of each request that is counted."""
    reasons = []

    def note(_, mode, reason, **__):
        reasons.append((mode, reason))

    observed.connect(note, app, weak=False)
    return reasons


class Pair:
    """The same view, bare and behind guards that observe."""

    def __init__(self, *guards, view=echo, store=None, idempotence=None, **settings):
        self.runs = []
        plain = {k: v for k, v in settings.items() if not k.startswith("IDEMPOTENCE_")}
        settings.setdefault("IDEMPOTENCE_OBSERVE", True)
        self.bare = bare_app(**plain)
        self.app = make_app(store=store, idempotence=idempotence, **settings)
        self.reasons = reasons_of(self.app)
        for app in (self.bare, self.app):
            name = "bare" if app is self.bare else "observed"

            def counted(name=name, **arguments):
                self.runs.append(name)
                return view(**arguments)

            for guard in guards if app is self.app else ():
                counted = guard(counted)
            app.add_url_rule("/", "view", counted, methods=["GET", "POST"])

    def send(self, times=1, **options):
        """Send requests to both: their answers are the same, byte for byte; return the last."""
        for _ in range(times):
            bare, answer = (told(app, **options) for app in (self.bare, self.app))
            assert bare == answer
        return answer

    @property
    def last(self):
        return self.reasons[-1][1] if self.reasons else None


def told(app, **options):
    """Return the status, the headers and the body of an answer, or the exception."""
    try:
        with app.test_client().post("/", **options) as answer:
            return answer.status, list(answer.headers), answer.data
    except Exception as error:
        return type(error), str(error)


def token_of(pair):
    return {"Idempotence-Token": pair.app.test_client().get("/token").json["token"]}


# Repeats


@STORES
@MODES
def test_repeats_run_and_are_counted_at_once_and_later(mode, store, request):
    at_once = threading.Barrier(64)

    def view():
        if len(pair.runs) <= 64:
            at_once.wait(30)
        return "done"

    pair = Pair(DECORATORS[mode](), view=view, **storage_settings(store, request))
    headers = token_of(pair) if mode == "token" else KEY
    answers = all_at_once([lambda: told(pair.app, data=b"1", headers=headers)] * 64)
    assert [status for status, *_ in answers] == ["200 OK"] * 64
    assert {body for *_, body in answers} == {b"done"}
    reason = {"lock": "repeat-submit", "token": "token-spent", "key": "key-in-progress"}[mode]
    assert pair.reasons == [(mode, reason)] * 63
    for _ in range(2):
        status, told_headers, _ = pair.send(data=b"1", headers=headers)
        assert status == "200 OK"
        assert "Idempotent" not in str(told_headers)
    assert pair.reasons[63:] == [(mode, "replay" if mode == "key" else reason)] * 2
    assert pair.runs.count("observed") == 66


FAILED = {
    "500": lambda: abort(500),
    "409": lambda: abort(409),
    "401": lambda: abort(401),
    "an exception": lambda: 1 / 0,
    "released by hand": lambda: current_guard.release() or "again",
}


def after(*, fails=False, raises=False, decide=None, answer="done"):
    """Return a view, and a hook that runs after it and may decide otherwise."""

    def hook(response):
        if raises:
            raise LookupError
        if decide is not None:
            decide()
        response.status_code = 500 if fails else response.status_code
        return response

    return lambda: answer, hook


KEPT_FOR_LESS = (lambda: current_guard.keep(ttl=60) or "done"), None
LATE = {
    "a hook fails it": (after(fails=True), False),
    "a hook raises": (after(raises=True), False),
    "a hook releases it": (after(decide=current_guard.release), False),
    "a hook keeps it": (after(decide=current_guard.keep, answer=("failed", 500)), True),
    "a hook leaves it": (after(), True),
    "it is kept for less time": (KEPT_FOR_LESS, False),
}


@pytest.mark.parametrize("case", LATE)
def test_what_is_decided_last_is_counted_as_it_is_enforced(case):
    (view, hook), is_repeat = LATE[case]
    for observes in (False, True):
        clock, runs = FakeClock(), []
        app = make_app(store=MemoryStore(clock=clock), IDEMPOTENCE_OBSERVE=observes, TESTING=False)
        clock.rule(app)
        reasons = reasons_of(app)
        if hook is not None:
            app.after_request(hook)
        app.post("/", endpoint="view")(idempotent(lambda runs=runs: runs.append(1) or view()))
        for _ in range(2):
            app.test_client().post("/", headers=KEY)
            clock.advance(100)
        assert reasons == [("key", "replay")] * (observes and is_repeat)
        assert len(runs) == (1 if is_repeat and not observes else 2)


def test_a_release_under_an_enforced_guard_further_out_is_counted_as_it_is_enforced():
    lock = no_repeat_submit(60, observe=False)
    pair = Pair(idempotent(), lock, view=lambda: current_guard.release() or "done")
    pair.send(times=2, headers=KEY)
    assert pair.reasons == []


@pytest.mark.parametrize("failure", FAILED)
@MODES
def test_what_failed_may_be_sent_again_uncounted(mode, failure):
    more = {"restore_on_failure": True} if mode == "token" else {}
    pair = Pair(DECORATORS[mode](**more), view=FAILED[failure])
    headers = token_of(pair) if mode == "token" else KEY
    pair.send(times=2, headers=headers)
    assert pair.reasons == []


def test_more_reasons_of_a_key():
    pair = Pair(idempotent(required=True, on_repeat="reject"))
    for data in (b"", b"", b"other"):
        pair.send(headers=KEY, data=data)
    assert pair.reasons == [("key", "key-repeated"), ("key", "key-reused")]
    for view in (lambda: Response(iter(["a", "b"])), lambda: "too long"):
        pair = Pair(idempotent(), view=view, IDEMPOTENCE_KEY_MAX_BODY=3)
        pair.send(times=2, headers=KEY)
        assert pair.reasons == [("key", "response-not-stored")]


def with_a_dictionary(body):
    response = Response(body)
    response.headers = {"Content-Type": "text/plain", "X-Own": "1"}
    return response


@pytest.mark.parametrize("body", ["whole", "streamed"])
def test_headers_in_a_plain_dictionary_are_counted_as_they_are_enforced(body):
    def view():
        return with_a_dictionary(body if body == "whole" else iter(body))

    pair = Pair(idempotent(), view=view)
    pair.send(headers=KEY)
    [_, repeat] = [told(pair.app, headers=KEY) for _ in "12"]
    pair.app.config["IDEMPOTENCE_OBSERVE"] = False
    first, repeat = (told(pair.app, headers=KEY) for _ in "12")
    assert first[0] == "200 OK"
    assert ("X-Own", "1") in first[1]
    if body == "whole":
        assert (pair.last, repeat[0], repeat[2]) == ("replay", "200 OK", b"whole")
        assert ("X-Own", "1") in repeat[1]
    else:
        assert (pair.last, repeat[0].upper()) == ("response-not-stored", "409 CONFLICT")


@pytest.mark.parametrize("record", [b"replay\nRequest rejected: forged", b"\xff", b"", b"x" * 999])
def test_a_reason_out_of_the_store_is_one_of_a_closed_list(record):
    store = MemoryStore()
    pair = Pair(idempotent(), store=store)
    complete = store.complete

    def forge(key, owner, fingerprint, _, ttl):
        return complete(key, owner, fingerprint, record, ttl)

    store.complete = forge
    pair.send(times=2, headers=KEY)
    assert pair.reasons == [("key", "response-not-stored")]


LONG = b"x" * (IN_MEMORY + 1)


@pytest.mark.parametrize(
    ("guard", "is_counted"),
    [
        (idempotent(), False),
        (idempotent(compare=False), True),
        (idempotent(compare=False, unless=lambda: False), False),
        (idempotent(compare=False, key=lambda: "k"), False),
        (idempotent(compare=lambda: "c"), False),
        (no_repeat_submit(60, key=lambda: "k"), False),
        (one_time_token(), True),
    ],
)
def test_a_body_that_is_not_kept_is_counted_as_unobserved(guard, is_counted, caplog):
    caplog.set_level(logging.INFO, "flask_idempotence")
    pair = Pair(guard, view=lambda: str(len(request.get_data())))
    headers = KEY | token_of(pair)
    pair.send(times=2, data=LONG, headers=headers)
    if is_counted:
        assert pair.last in ("replay", "token-spent")
    else:
        assert [reason for _, reason in pair.reasons] == ["unobserved"] * 2
        assert "reason=unobserved (the body is longer than 1048576 bytes) mode=" in caplog.text


def test_nothing_waits():
    pair = Pair(idempotent(wait=30), view=lambda: told(pair.app, headers=KEY)[0] if lap() else "")
    laps = []

    def lap():
        laps.append(1)
        return len(laps) == 1

    began = time.monotonic()
    told(pair.app, headers=KEY)
    assert time.monotonic() - began < 10
    assert pair.reasons == [("key", "key-in-progress")]


# Tokens, keys, bodies and functions of the application


def test_bad_tokens(monkeypatch):
    idempotence, users = Idempotence(), ["ann"]
    idempotence.identity_loader(lambda: users[0])
    pair = Pair(one_time_token("pay"), idempotence=idempotence)
    with pair.app.test_request_context():
        tokens = [idempotence.issue_token(purpose) for purpose in ("pay", "other")]
    users[:] = ["bob"]
    pair.send()
    for token in ("", "x" * 999, "\xe4", tokens[1], tokens[0]):
        pair.send(headers={"Idempotence-Token": token})
    engine = pair.app.extensions["idempotence"].engine
    engine.store.clear("")
    monkeypatch.setattr(engine.services.tokens, "clock", lambda: time.time() + 9999)
    pair.send(headers={"Idempotence-Token": tokens[0]})
    reasons = ["missing", *["invalid"] * 4, "not-yours", "expired"]
    assert pair.reasons == [("token", f"token-{reason}") for reason in reasons]


def test_bad_keys():
    pair = Pair(idempotent(required=True, key_pattern=".{8,}"))
    pair.send()
    for key in ("", "\xe4", '"open', "short"):
        pair.send(headers={"Idempotency-Key": key})
    assert pair.reasons == [("key", "key-missing"), *[("key", "key-invalid")] * 4]


class Broken(io.RawIOBase):
    """An input that breaks off, by an error or by its end."""

    def __init__(self, error=None):
        self._pieces, self._error = [b"a=1&", b"b=2"], error

    def readinto(self, buffer):
        if self._error and not self._pieces:
            raise self._error
        piece = self._pieces.pop(0) if self._pieces else b""
        buffer[: len(piece)] = piece
        return len(piece)


CHUNKED = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}


@pytest.mark.parametrize("error", [None, OSError("gone"), ClientDisconnected()])
@pytest.mark.parametrize(
    "how",
    [{"CONTENT_LENGTH": "100"}, CHUNKED, {"wsgi.input_terminated": True}],
    ids=["length", "chunked", "neither"],
)
@pytest.mark.parametrize("decorate", [*DECORATORS.values(), partial(idempotent, compare=False)])
def test_bodies_that_break_off(decorate, how, error):
    def view():
        read = []
        try:
            while piece := request.stream.read(4):
                read.append(piece)
        except Exception as raised:
            read.append(type(raised).__name__.encode())
        return b"|".join(read)

    # The extension fills each piece up, also where there is no guard.
    answers = []
    for guard in (None, decorate(observe=True)):
        environ = {"wsgi.input": Broken(error), **how}
        answer = send(app_with(view, guard), b"", FORM, environ, KEY)
        answers.append((answer.status, list(answer.headers), answer.data))
    assert answers[0] == answers[1]


def test_a_body_that_breaks_off_in_the_view_is_no_result():
    app = make_app(IDEMPOTENCE_OBSERVE=True, testing=False)
    reasons = reasons_of(app)

    @app.post("/")
    @idempotent(compare=False)
    def view():
        return request.get_data()

    for _ in range(2):
        answer = send(app, b"a=1&b=2", FORM, {"CONTENT_LENGTH": "100"}, KEY)
        assert answer.status_code == 400
    assert reasons == []


@pytest.mark.parametrize(
    ("environ", "settings"),
    [
        ({"HTTP_TRANSFER_ENCODING": "chunked"}, {}),
        ({"CONTENT_LENGTH": "30"}, {"MAX_CONTENT_LENGTH": 9}),
    ],
    ids=["without a length", "over the limit"],
)
@pytest.mark.parametrize(
    "guard",
    [
        idempotent(compare=lambda: "c"),
        idempotent(key=lambda: "k", compare=False),
        no_repeat_submit(60, key=lambda: "k"),
        no_repeat_submit(60, unless=lambda: True),
    ],
)
def test_a_body_that_functions_of_the_application_may_leave_unread_is_no_error(
    guard, environ, settings, caplog
):
    """An enforcing guard refuses it only where they read it."""
    caplog.set_level(logging.INFO, "flask_idempotence")
    app = app_with(lambda: "unread", guard, IDEMPOTENCE_OBSERVE=True, **settings)
    reasons = reasons_of(app)
    assert send(app, b"0123456789" * 3, BYTES, environ, KEY).data == b"unread"
    assert [reason for _, reason in reasons] == ["unobserved"]
    assert "(the body cannot be read: " in caplog.text


READERS = {
    "data": lambda _: request.get_data(),
    "into a buffer": lambda stream: io.BufferedReader(stream).read(),
    "lines": lambda stream: b"".join(stream.readlines()),
    "from the beginning": lambda stream: stream.seek(0) or stream.read(),
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("compared", ["form", "stream"])
def test_an_input_that_a_hook_has_replaced_is_read_by_the_view_as_ever(read, compared):
    def replace():
        request.environ["wsgi.input"] = io.BytesIO(request.environ["wsgi.input"].read())

    seen = {"form": lambda: request.form["id"], "stream": lambda: request.stream.read(3).hex()}
    pair = Pair(
        idempotent(compare=seen[compared]),
        view=lambda: READERS[read](request.environ["wsgi.input"]),
    )
    for app in (pair.bare, pair.app):
        app.before_request(replace)
    pair.send(data={"id": "1"}, headers=KEY)


def fails():
    raise LookupError("faulty")


FAULTY = {
    "key": lambda: [no_repeat_submit(key=fails), idempotent(key=fails)],
    "key of no JSON": lambda: [no_repeat_submit(key=object), idempotent(key=object)],
    "unless": lambda: [decorate(unless=fails) for decorate in DECORATORS.values()],
    "compare": lambda: [idempotent(compare=fails)],
    "abort": lambda: [idempotent(key=lambda: abort(418))],
    "reads": lambda: [idempotent(key=lambda: request.stream.read() and fails())],
}


@pytest.mark.parametrize("kind", FAULTY)
def test_faulty_functions(kind, caplog):
    caplog.set_level(logging.INFO, "flask_idempotence")
    for guard in FAULTY[kind]():
        pair = Pair(guard)
        pair.send(data=b'{"a":1}', headers=KEY)
        assert pair.runs == ["bare", "observed"]
        assert pair.last == "error" or (kind == "key of no JSON" and pair.last == "key-invalid")
    assert "Request observed: reason=error mode=" in caplog.text
    assert ("LookupError" in caplog.text) == (kind not in ("abort", "key of no JSON"))


@MODES
def test_a_faulty_predicate_of_results(mode):
    idempotence = Idempotence()

    @idempotence.result_failed
    def result_failed(response):
        response.set_data("changed")
        response.headers["X-Changed"] = "1"
        raise LookupError

    for view in (echo, lambda: Response(iter("ab"))):
        Pair(DECORATORS[mode](), idempotence=idempotence, view=view).send(headers=KEY)


def test_a_request_without_a_key_that_needs_none_is_not_counted():
    pair = Pair(idempotent(), idempotent(unless=lambda: True), no_repeat_submit(unless=lambda: 1))
    pair.send(times=2)
    assert pair.reasons == []


# The store


class DeadStore(MemoryStore):
    def claim(self, *_, **__):
        raise StoreError("dead")

    complete = release = take_token = put_token = renew = claim


@pytest.mark.parametrize("policy", ["reject", "allow"])
@MODES
def test_a_store_that_fails(mode, policy, caplog):
    pair = Pair(DECORATORS[mode](on_store_error=policy), store=DeadStore())
    headers = token_of(pair) if mode == "token" else KEY
    pair.reasons.clear()
    pair.send(headers=headers)
    assert pair.reasons == [(mode, "store-unavailable")] * (policy == "reject")
    assert "get 503" not in caplog.text


@pytest.mark.timed
@pytest.mark.parametrize(
    ("mode", "state"),
    [("lock", "killed"), ("token", "frozen"), ("key", "frozen"), ("key", "frozen in the view")],
)
def test_redis_takes_a_tenth_of_a_second_at_most(mode, state, fresh_redis):
    def view():
        if state == "frozen in the view" and pair.runs[-1] == "observed":
            fresh_redis.pause()
        return "done"

    guards = DECORATORS[mode](), no_repeat_submit(30, key=lambda: 1)
    pair = Pair(*guards, view=view, IDEMPOTENCE_STORAGE_URI=fresh_redis.url)
    headers = token_of(pair) if mode == "token" else KEY
    if state != "frozen in the view":
        told(pair.app, headers=headers, data=b"warm")
        {"killed": fresh_redis.kill, "frozen": fresh_redis.pause}[state]()
    try:
        laps = []
        for _ in range(3):
            began = time.monotonic()
            assert pair.send(headers=headers)[0] == "200 OK"
            laps.append(time.monotonic() - began)
        assert min(laps) < 0.1 + 0.05  # of a busy machine
    finally:
        if state != "killed":
            fresh_redis.resume()
    assert "store-unavailable" in {reason for _, reason in pair.reasons}


@pytest.mark.timed
def test_a_locked_database_takes_a_tenth_of_a_second_at_most(request, tmp_path):
    guards = idempotent(), no_repeat_submit(30, key=lambda: 1), no_repeat_submit(30, key=lambda: 2)
    pair = Pair(*guards, view=lambda: "done", **storage_settings("sqlite", request))
    pair.send(headers=KEY)
    other = sqlite3.connect(tmp_path / "store.db")
    other.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    pair.send(headers={"Idempotency-Key": "another"})
    assert time.monotonic() - began < 0.4
    other.close()
    assert pair.last == "store-unavailable"


# Enforcement beside and after it


@STORES
@MODES
def test_enforcement_does_not_go_by_what_was_observed(mode, store, request):
    settings = storage_settings(store, request)
    pair = Pair(DECORATORS[mode](), IDEMPOTENCE_OBSERVE="true", **settings)
    fresh = token_of(pair)  # of a page that was open
    pair.send(times=2, headers=KEY)
    pair.app.config["IDEMPOTENCE_OBSERVE"] = "false"  # read at each request
    headers = fresh if mode == "token" else KEY
    first, second = told(pair.app, headers=headers), told(pair.app, headers=headers)
    assert first[0] == "200 OK"
    assert "Idempotent-Replayed" not in str(first[1])
    assert pair.runs.count("observed") == 3
    assert (second[0][:3] == "409") == (mode != "key")


@MODES
def test_the_route_takes_precedence_and_the_switch_over_both(mode):
    pair = Pair(DECORATORS[mode](observe=False))
    told(pair.app)
    assert told(pair.app)[0][:3] in ("409", "400")
    assert pair.reasons == []
    pair = Pair(DECORATORS[mode](observe=True), IDEMPOTENCE_OBSERVE=False)
    pair.send(times=2)
    assert pair.reasons
    pair.reasons.clear()
    pair.app.config["IDEMPOTENCE_ENABLED"] = False
    pair.send()
    assert pair.reasons == []


def test_an_enforced_guard_inside_refuses_and_the_outer_one_counts_no_repeat():
    pair = Pair(no_repeat_submit(60, observe=False), idempotent())  # the key is outside
    answers = [told(pair.app, headers=KEY)[0][:3] for _ in range(3)]
    assert answers == ["200", "409", "409"]
    assert pair.reasons == [("key", "replay")] * 2
    pair = Pair(one_time_token(observe=False), idempotent())
    assert [told(pair.app, headers=KEY)[0][:3] for _ in range(2)] == ["400", "400"]
    assert pair.reasons == []  # the view has not run


def test_the_same_key_in_an_inner_guard_is_counted_once():
    pair = Pair(idempotent(), idempotent())
    pair.send(times=3, headers=KEY)
    assert pair.reasons == [("key", "replay")] * 2
    pair = Pair(idempotent(), no_repeat_submit(60))
    pair.send(times=2, headers=KEY)
    assert pair.reasons == [("lock", "repeat-submit"), ("key", "replay")]


def test_within_commits_as_when_switched_off_and_steps_run_each_time(pay_app):
    books, steps = pay_app(settings={"IDEMPOTENCE_OBSERVE": True}), []
    reasons = reasons_of(books.app)

    def view(session):
        with books.idempotence.step("charge") as step:
            steps.append(step.first)
        return books.pay(session)

    books._view = view
    assert [books.post(amount=2).status_code for _ in range(3)] == [201] * 3
    assert (books.amounts(), steps) == ([2, 2, 2], [True] * 3)
    assert reasons == [("key", "replay")] * 2

    def fail(session):
        books.pay(session)
        abort(400)

    books._view = fail
    assert books.post(key="other").status_code == 400
    assert len(books.amounts()) == 3

    del reasons[:]
    books._view = lambda session: (books.pay(session), current_guard.release())[0]
    for _ in range(2):
        books.post(key="released")
    assert reasons == []


# Endpoints, pages and `ensure_held`


def test_endpoints_that_would_be_closed_answer(caplog):
    guard = idempotent(guarantee="at-most-once")
    pair = Pair(guard, view=lambda: "done", IDEMPOTENCE_ON_STORE_ERROR="allow")
    no_repeat_submit(5)(pair.app.post("/above")(lambda: "done"))
    assert pair.send()[2] == b"done"
    assert "would be answered 500" in caplog.text
    assert pair.last == "error"
    assert pair.app.test_client().post("/above").text == "done"
    pair.app.config["IDEMPOTENCE_OBSERVE"] = False
    assert told(pair.app)[0] != "200 OK"


def test_a_token_may_be_issued_while_a_guard_asks():
    idempotence = Idempotence()
    guard = idempotent(key=lambda: idempotence.issue_token() and request.get_data(as_text=True))
    pair = Pair(guard, idempotence=idempotence)
    pair.send(times=2, data=b"key")
    assert pair.reasons == [("key", "replay")]


def test_a_page_with_a_field_gets_no_header_and_needs_no_store(caplog):
    for store in (MemoryStore(), DeadStore()):
        pair = Pair(one_time_token(), store=store)
        view = partial(render_template_string, "{{ idempotence_field() }}")
        pair.app.add_url_rule("/page", "page", view)
        answer = pair.app.test_client().get("/page")
        assert answer.status_code == 200
        assert "Cache-Control" not in answer.headers
        assert b"idempotence_token" in answer.data
    assert pair.reasons == [("token", "store-unavailable")]
    assert "get 503" not in caplog.text


def test_ensure_held_does_not_raise():
    store = MemoryStore()

    def view():
        if pair.runs[-1] == "observed":
            store.clear("")
        current_guard.ensure_held()
        return "held"

    pair = Pair(*(decorate() for decorate in DECORATORS.values()), view=view, store=store)
    headers = KEY | token_of(pair)
    assert pair.send(headers=headers)[2] == b"held"
    assert pair.reasons == []


# What shows it


def test_the_log_and_the_metric_tell_mode_endpoint_and_reason(caplog):
    caplog.set_level(logging.INFO, "flask_idempotence")
    registry = CollectorRegistry()
    pair = Pair(idempotent(required=True))
    Metrics(pair.app, registry=registry)
    pair.send()
    line = "Request observed: reason=key-missing mode=key endpoint=view key=None route=POST /"
    assert line in caplog.messages
    labels = {"mode": "key", "endpoint": "view", "reason": "key-missing"}
    assert registry.get_sample_value("idempotence_observed_total", labels) == 1
    assert registry.get_sample_value("idempotence_requests_total") is None


def test_routes_and_doctor_say_so():
    pair = Pair(idempotent())
    pair.app.post("/enforced")(no_repeat_submit(5, observe=False)(lambda: "done"))
    cli = pair.app.test_cli_runner()
    lines = cli.invoke(args=["idempotence", "routes"]).stdout.splitlines()
    assert [line.split("\t")[3:] for line in lines] == [
        ["key (observed)", ""],
        ["lock", "route: interval=5.0, observe=False"],
    ]
    shown = cli.invoke(args=["idempotence", "doctor"]).stdout
    assert re.search(r"note\tobserve\tIDEMPOTENCE_OBSERVE is on: nothing is enforced", shown)


def test_blueprints_and_the_whole_application_are_observed():
    pair = Pair(IDEMPOTENCE_KEY_ALL_ROUTES=True, IDEMPOTENCE_KEY_REQUIRED=True)
    pair.send()
    assert pair.reasons == [("key", "key-missing")]
    blueprint = no_repeat_submit(60, observe=True)(Blueprint("api", "api"))
    blueprint.add_url_rule("/", "view", lambda: "done", methods=["POST"])
    app = make_app()
    app.register_blueprint(blueprint)
    assert [told(app)[0][:3] for _ in range(2)] == ["200", "200"]
