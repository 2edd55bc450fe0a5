"""`once`: what happens once by its name, as a context manager and as a decorator."""

import asyncio
import time
from uuid import uuid4

import pytest
from helpers.apps import bare_app, events_of
from helpers.once_operations import OnceApp, elsewhere, once_app_on
from helpers.servers.processes import all_at_once

from flask_idempotence import ConfigurationError, Running, current_guard


@pytest.fixture(params=["memory", "redis"])
def once_app(request):
    return once_app_on(request.param, request)


ENDED = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": SystemExit,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
}


def test_the_first_does_the_work_and_the_others_read_its_result(once_app):
    assert once_app.work(result={"paid": 5}) == (True, {"paid": 5})
    assert once_app.work(result="another") == (False, {"paid": 5})
    assert once_app.work(result="another") == (False, {"paid": 5})
    assert once_app.runs == 1


def test_another_id_and_another_scope_are_other_operations(once_app):
    assert [once_app.word(id_) for id_ in ("1", "2", "1")] == ["first", "first", "done"]
    assert once_app.word("1", scope="reminder") == "first"
    assert once_app.runs == 3


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


@pytest.mark.parametrize("error", ENDED.values(), ids=ENDED)
def test_who_is_ended_from_outside_leaves_the_operation_to_its_lease(error):
    once_app = OnceApp()
    with pytest.raises(error):
        once_app.end(error())
    assert once_app.word() == "running"
    once_app.pass_time(29)
    assert once_app.word() == "running"
    once_app.pass_time(2)
    assert once_app.word() == "first"


def test_a_generator_that_is_not_read_to_its_end_leaves_its_claim_to_the_lease():
    once_app = OnceApp()

    def steps():
        with once_app.once():
            yield 1
            yield 2

    with once_app.app.app_context():
        unfinished = steps()
        assert next(unfinished) == 1
        unfinished.close()
        assert current_guard.mode is None
    assert once_app.word() == "running"
    once_app.pass_time(31)
    assert once_app.word() == "first"


def test_of_64_threads_one_is_the_first(once_app):
    def work():
        try:
            with once_app.app.app_context(), once_app.once() as job:
                if not job.first:
                    return job.result
                once_app.runs += 1
                time.sleep(0.1)
                job.result = "the one"
                return "first"
        except Running:
            return "running"

    came_of_it = all_at_once([work] * 64)
    assert came_of_it.count("first") == once_app.runs == 1
    assert set(came_of_it) <= {"first", "running", "the one"}
    assert all_at_once([work] * 64) == ["the one"] * 64
    assert once_app.runs == 1


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


def test_an_application_context_is_needed_when_it_begins():
    job = OnceApp().once()
    with pytest.raises(RuntimeError, match="application context"):
        job.__enter__()


def test_it_is_good_for_one_with_statement():
    once_app = OnceApp()
    with once_app.app.app_context():
        with once_app.once() as job:
            pass
        with pytest.raises(RuntimeError, match="one with statement"):
            job.__enter__()


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

    with once_app.app.app_context():
        assert send(1, to="a@test") == {"order": 1, "to": "a@test"}
        assert send(1, to="b@test") == {"order": 1, "to": "a@test"}
        assert send(2) == {"order": 2, "to": "all"}
    assert sent == [(1, "a@test"), (2, "all")]
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


def test_a_decorated_function_with_a_fixed_id_runs_once():
    once_app, ran = OnceApp(), []

    @once_app.idempotence.once("migration", "2026-11")
    def migrate():
        ran.append(1)

    with once_app.app.app_context():
        assert [migrate() for _ in range(3)] == [None] * 3
    assert ran == [1]


def test_a_decorated_method_gets_its_self():
    once_app = OnceApp()

    class Post:
        @once_app.idempotence.once("mail", key=lambda self, order: order)
        def send(self, order):
            return [type(self).__name__, order]

    with once_app.app.app_context():
        assert Post().send(3) == Post().send(3) == ["Post", 3]


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


def test_a_function_that_only_promises_to_work_is_not_counted_as_done():
    once_app = OnceApp()

    class Promise:
        def __init__(self, begin):
            self.begin = begin

        def __call__(self):
            return self.begin()

    for begin in (waits, generates, generates_later):
        promise = once_app.once()(Promise(begin))
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


def test_another_mode_that_is_off_does_not_matter():
    once_app = OnceApp(IDEMPOTENCE_KEY_ENABLED=False, IDEMPOTENCE_LOCK_ENABLED=False)
    assert [once_app.word(), once_app.word()] == ["first", "done"]


def test_an_application_without_the_extension_is_told_of_it():
    job = OnceApp().once(uuid4())
    with bare_app().app_context(), pytest.raises(ConfigurationError, match="not registered"):
        job.__enter__()
