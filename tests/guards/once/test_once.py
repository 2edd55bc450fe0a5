"""`once`: what happens once by its name, as a context manager and as a decorator."""

import asyncio
import enum
import hashlib
import hmac
import time
from uuid import UUID

import pytest
from helpers.apps import bare_app, events_of
from helpers.every_store import EVERY_STORE, storage_settings
from helpers.once_operations import OnceApp, elsewhere, once_app_on
from helpers.servers.processes import all_at_once

from flask_idempotence import ConfigurationError, Running, current_guard


@pytest.fixture(params=["memory", "redis"])
def once_app(request):
    return once_app_on(request.param, request)


def test_the_first_does_the_work_and_the_others_read_its_result(once_app):
    assert once_app.work(result={"paid": 5}) == (True, {"paid": 5})
    assert once_app.work(result="another") == (False, {"paid": 5})
    assert once_app.work(result="another") == (False, {"paid": 5})
    assert once_app.runs == 1


def test_whoever_meets_a_running_one_is_told_so_at_once(once_app):
    with once_app.app.app_context(), once_app.once() as job:
        assert job.first
        with pytest.raises(Running) as met:
            elsewhere(once_app.work)
        assert 25 < met.value.remaining <= 30
        assert met.value.retry_after == 1
        assert once_app.word("2") == "first"
    assert once_app.word() == "done"
    assert once_app.runs == 1


def test_an_exception_gives_the_operation_free_and_goes_on(once_app):
    with pytest.raises(ValueError, match="no bank"):
        once_app.end(ValueError("no bank"))
    assert not list(once_app.store.scan(""))
    assert once_app.word() == "first"


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError]
)
def test_who_is_ended_from_outside_leaves_the_operation_to_its_lease(error):
    once_app = OnceApp()
    with pytest.raises(error):
        once_app.end(error())
    assert current_guard.mode is None
    assert once_app.word() == "running"
    once_app.pass_time(29)
    assert once_app.word() == "running"
    once_app.pass_time(2)
    assert once_app.word() == "first"


@pytest.mark.parametrize(
    ("decorated", "wait", "told"),
    [(False, None, {"done", "running"}), (False, 60, {"done"}), (True, 60, {"done"})],
)
@pytest.mark.parametrize("kind", EVERY_STORE)
def test_of_sixteen_at_once_one_works_and_all_have_its_result(
    kind, decorated, wait, told, request
):
    once_app = OnceApp(**storage_settings(kind, request))
    once_app.engine.clock, once_app.engine.sleep = time.monotonic, time.sleep
    runs = []

    def work():
        runs.append(1)
        time.sleep(0.2)
        return "done"

    once = once_app.idempotence.once
    decorated_work = once("invoice", key=lambda: 1, wait=wait)(work)

    def call():
        with once_app.app.app_context():
            if decorated:
                return decorated_work()
            try:
                with once("invoice", 1, wait=wait) as job:
                    if job.first:
                        job.result = work()
                return job.result
            except Running:
                return "running"

    assert set(all_at_once([call] * 16)) <= told
    assert all_at_once([call] * 16) == ["done"] * 16
    assert runs == [1]


def test_it_is_done_for_the_ttl_and_no_longer():
    once_app = OnceApp()
    assert once_app.word(ttl=100) == "first"
    once_app.clock.advance(99)
    assert once_app.word() == "done"
    once_app.clock.advance(2)
    assert once_app.word() == "first"
    once_app.clock.advance(86_399)  # a day, unless it is said
    assert once_app.word() == "done"
    once_app.clock.advance(2)
    assert once_app.word() == "first"


def test_a_block_begins_once_and_in_an_application_with_the_extension():
    once_app = OnceApp()
    with pytest.raises(RuntimeError, match="application context"):
        once_app.once().__enter__()
    with bare_app().app_context(), pytest.raises(ConfigurationError, match="not registered"):
        once_app.once().__enter__()
    with once_app.app.app_context():
        with once_app.once() as job:
            pass
        with pytest.raises(RuntimeError, match="one with statement"):
            job.__enter__()
        with pytest.raises(RuntimeError, match="decorator"):
            once_app.idempotence.once("mail", key=str).__enter__()


def test_only_the_first_sets_the_result():
    once_app = OnceApp()
    once_app.work(result=1)
    with once_app.app.app_context(), once_app.once() as job:
        assert not job.first
        with pytest.raises(RuntimeError, match="first"):
            job.result = 2
    assert once_app.work() == (False, 1)


def test_a_decorated_function_runs_once_for_each_id(once_app):
    sent = []

    @once_app.idempotence.once("mail", key=lambda order, **more: order)
    def send(order, *, to="all"):
        """Send a mail."""
        sent.append((order, to))
        return {"order": order, "to": to}

    migrate = once_app.idempotence.once("migration", "2026-11")(lambda: sent.append("migrated"))
    with once_app.app.app_context():
        assert send(1, to="a@test") == {"order": 1, "to": "a@test"}
        assert send(1, to="b@test") == {"order": 1, "to": "a@test"}
        assert send(2) == {"order": 2, "to": "all"}
        assert [migrate() for _ in range(3)] == [None] * 3
    assert sent == [(1, "a@test"), (2, "all"), "migrated"]
    assert (send.__name__, send.__doc__) == ("send", "Send a mail.")


def test_an_async_function_runs_once_for_each_id(once_app):
    sent = []

    @once_app.idempotence.once("mail", key=lambda order: order)
    async def send(order):
        await asyncio.sleep(0)
        sent.append((order, current_guard.mode))
        return order * 2

    async def all_of_them():
        return [await send(order) for order in (1, 2, 1)]

    with once_app.app.app_context():
        assert asyncio.run(all_of_them()) == [2, 4, 2]
    assert sent == [(1, "once"), (2, "once")]


def generates():
    yield 1


async def waits():
    await asyncio.sleep(0)


async def generates_later():
    yield 1


@pytest.mark.parametrize("what", [generates, generates_later, OnceApp, 7])
def test_what_does_not_return_when_it_is_done_cannot_be_decorated(what):
    with pytest.raises(TypeError, match="decorates a function"):
        OnceApp().once()(what)


@pytest.mark.parametrize("begin", [waits, generates, generates_later])
def test_a_function_that_only_promises_to_work_is_not_counted_as_done(begin):
    class Promise:
        def __call__(self):
            return begin()

    once_app = OnceApp()
    promise = once_app.once()(Promise())
    with once_app.app.app_context(), pytest.raises(TypeError, match="whose work comes later"):
        promise()
    assert once_app.word() == "first"


@pytest.mark.parametrize("toggle", [False, "false"])
def test_switched_off_everybody_is_the_first_and_the_store_is_not_asked(toggle):
    once_app = OnceApp()
    events = events_of(once_app.app)
    once_app.app.config["IDEMPOTENCE_ENABLED"] = toggle
    assert [once_app.work(result=7) for _ in range(2)] == [(True, 7)] * 2
    with once_app.app.app_context(), once_app.once():
        assert (current_guard.mode, current_guard.key) == (None, None)
        current_guard.ensure_held()
        assert once_app.word() == "first"
    assert not list(once_app.store.scan(""))
    assert events == []


# What may name an operation

ID = UUID("8e03978e-40d5-43e8-bc93-6894a57f9324")


class Kind(enum.IntEnum):
    ORDER = 1


DISTINCT = [
    *(1, "1", 0, -1, "0", " ", "1 ", 10**100, 10**100 + 1),
    *("a", "A", "ä", "a\u0308", "\udc80", "\ud83d\ude00", "\x00", "a\nb", "a:b"),
    *(ID, str(ID), ID.hex, ("uuid", ID.hex), (str(ID),), (ID,)),
    *((1,), ("1",), (1, 2), (2, 1), (12,), ("1", "2"), ("1,2",), ((1,), 2), (1, (2,)), ((1, 2),)),
    *(("tuple", 1), ("a", ("b", "c")), ("a", "b", "c"), "[1]", "null", "true"),
]


def test_every_id_is_its_own_and_every_scope():
    once_app = OnceApp()
    assert [once_app.word(id_) for id_ in DISTINCT] == ["first"] * len(DISTINCT)
    assert [once_app.word(id_) for id_ in DISTINCT] == ["done"] * len(DISTINCT)
    assert once_app.word(1, scope="reminder") == "first"
    equal = [UUID(ID.hex.upper()), Kind.ORDER]
    assert [once_app.word(id_) for id_ in equal] == ["done", "done"]


BAD = {
    "nothing": None,
    "a truth": True,
    "a number with a point": 1.5,
    "bytes": b"1",
    "a list": ["1"],
    "an empty text": "",
    "an empty tuple": (),
    "a tuple with a truth": (1, True),
    "a tuple with an empty one": (1, ()),
    "a tuple with an empty text": ("", 1),
}


@pytest.mark.parametrize("id_", BAD.values(), ids=BAD)
def test_what_cannot_name_an_operation_or_a_lock_is_refused(id_):
    once_app, ran = OnceApp(), []
    with pytest.raises(TypeError, match=r"the name of lock\(\)"):
        once_app.idempotence.lock(id_)
    with pytest.raises(TypeError, match="The id of once") as caught:
        once_app.work(id_)
    if id_ in ("", ()):
        assert "not an empty " in str(caught.value)
    handle = once_app.idempotence.once("mail", key=lambda: id_)(lambda: ran.append(1))
    with once_app.app.app_context():
        with pytest.raises(TypeError, match="The id of once"):
            handle()
        with pytest.raises(TypeError, match="The id of once"):
            once_app.idempotence.forget("mail", id_)
    assert (ran, list(once_app.store.scan(""))) == ([], [])


def test_an_integer_too_long_to_be_written_is_refused_with_a_reason():
    with pytest.raises(ValueError, match="integer"):
        OnceApp().work(10**5000)


@pytest.mark.parametrize("scope", ["a", "send-mail", "shop.orders_2", "A" * 64, "-", "."])
def test_a_scope_is_a_short_word(scope):
    assert f":once:{scope}:" in OnceApp().key_of(scope=scope)


# Frozen: another text for the same operation would let what is done be done again.
VECTORS = {
    "7": ("invoice", 7, b'["once","invoice",7]'),
    "text": ("invoice", "ä7", b'["once","invoice","\\u00e47"]'),
    "uuid": ("mail", ID, b'["once","mail",["uuid","8e03978e40d543e8bc936894a57f9324"]]'),
    "tuple": ("a.b", ("eu", (7, "x")), b'["once","a.b",["tuple","eu",["tuple",7,"x"]]]'),
}


@pytest.mark.parametrize(("scope", "id_", "message"), VECTORS.values(), ids=VECTORS)
def test_the_store_key_is_this_one(scope, id_, message):
    once_app = OnceApp(IDEMPOTENCE_PREFIX="shop")
    key = hmac.digest(b"a secret for the tests", b"flask-idempotence/hash", hashlib.sha256)
    text = hmac.digest(key, message, hashlib.sha256)[:16].hex()
    assert once_app.key_of(id_, scope=scope) == f"shop:2:once:{scope}:{text}"


# A second caller waits, and then is the first or reads the result
