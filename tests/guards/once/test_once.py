"""`once`: what happens once by its name, as a context manager and as a decorator."""

import asyncio
import functools
import time
from uuid import uuid4

import pytest
from helpers.apps import bare_app, events_of
from helpers.once_operations import Shift, shift_on
from helpers.servers.processes import all_at_once

from flask_idempotence import ConfigurationError, Running, current_guard


@pytest.fixture(params=["memory", "redis"])
def shift(request):
    return shift_on(request.param, request)


ENDED = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": SystemExit,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
}


def test_the_first_does_the_work_and_the_others_read_its_result(shift):
    assert shift.work(result={"paid": 5}) == (True, {"paid": 5})
    assert shift.work(result="another") == (False, {"paid": 5})
    assert shift.work(result="another") == (False, {"paid": 5})
    assert shift.runs == 1


def test_another_id_and_another_scope_are_other_operations(shift):
    assert [shift.word(id_) for id_ in ("1", "2", "1")] == ["first", "first", "done"]
    assert shift.word("1", scope="reminder") == "first"
    assert shift.runs == 3


def test_whoever_meets_a_running_one_is_told_so_at_once(shift):
    with shift.app.app_context(), shift.once() as job:
        assert job.first
        with pytest.raises(Running) as met:
            shift.work()
        assert 25 < met.value.remaining <= 30
        assert met.value.retry_after == 1
        assert shift.word("2") == "first"
    assert shift.word() == "done"
    assert shift.runs == 1


def test_an_exception_gives_the_operation_free_and_goes_on(shift):
    with pytest.raises(ValueError, match="no bank"):
        shift.end(ValueError("no bank"))
    assert not list(shift.store.scan(""))
    assert shift.word() == "first"


@pytest.mark.parametrize("error", ENDED.values(), ids=ENDED)
def test_who_is_ended_from_outside_leaves_the_operation_to_its_lease(error):
    shift = Shift()
    with pytest.raises(error):
        shift.end(error())
    assert shift.word() == "running"
    shift.pass_time(29)
    assert shift.word() == "running"
    shift.pass_time(2)
    assert shift.word() == "first"


def test_on_redis_too_the_lease_frees_what_was_ended_from_outside(redis_url):
    shift = Shift(IDEMPOTENCE_STORAGE_URI=redis_url, IDEMPOTENCE_LEASE=1)
    with pytest.raises(SystemExit):
        shift.end(SystemExit())
    assert shift.word() == "running"
    time.sleep(1.1)
    assert shift.word() == "first"


def test_a_generator_that_is_not_read_to_its_end_leaves_its_claim_to_the_lease():
    shift = Shift()

    def steps():
        with shift.once():
            yield 1
            yield 2

    with shift.app.app_context():
        unfinished = steps()
        assert next(unfinished) == 1
        unfinished.close()
        assert current_guard.mode is None
    assert shift.word() == "running"
    shift.pass_time(31)
    assert shift.word() == "first"


def test_of_64_threads_one_is_the_first(shift):
    def work():
        try:
            with shift.app.app_context(), shift.once() as job:
                if not job.first:
                    return job.result
                shift.runs += 1
                time.sleep(0.1)
                job.result = "the one"
                return "first"
        except Running:
            return "running"

    came_of_it = all_at_once([work] * 64)
    assert came_of_it.count("first") == shift.runs == 1
    assert set(came_of_it) <= {"first", "running", "the one"}
    assert all_at_once([work] * 64) == ["the one"] * 64
    assert shift.runs == 1


def test_of_64_threads_each_id_has_its_own_first(shift):
    words = all_at_once([functools.partial(shift.word, number % 16) for number in range(64)])
    assert words.count("first") == 16
    assert [shift.word(number) for number in range(16)] == ["done"] * 16


def test_it_is_done_for_the_ttl_and_no_longer():
    shift = Shift()
    assert shift.word(ttl=100) == "first"
    shift.clock.advance(99)
    assert shift.word() == "done"
    shift.clock.advance(2)
    assert shift.word() == "first"
    shift.clock.advance(86_399)  # a day, unless it is said
    assert shift.word() == "done"
    shift.clock.advance(2)
    assert shift.word() == "first"


def test_it_is_good_inside_a_request_too(shift):
    @shift.app.post("/webhooks/<id_>")
    def webhook(id_):
        return list(shift.work(id_, result=f"handled {id_}"))

    client = shift.app.test_client()
    assert client.post("/webhooks/7").json == [True, "handled 7"]
    assert client.post("/webhooks/7").json == [False, "handled 7"]
    assert shift.work("7") == (False, "handled 7")


def test_an_application_context_is_needed_when_it_begins():
    job = Shift().once()
    with pytest.raises(RuntimeError, match="application context"):
        job.__enter__()


def test_it_is_good_for_one_with_statement():
    shift = Shift()
    with shift.app.app_context():
        with shift.once() as job:
            pass
        with pytest.raises(RuntimeError, match="one with statement"):
            job.__enter__()


def test_only_the_first_sets_the_result():
    shift = Shift()
    shift.work(result=1)
    with shift.app.app_context(), shift.once() as job:
        assert not job.first
        with pytest.raises(RuntimeError, match="first"):
            job.result = 2
    assert shift.work() == (False, 1)


def test_a_decorated_function_runs_once_for_each_id(shift):
    sent = []

    @shift.idempotence.once("mail", key=lambda order, **more: order)
    def send(order, *, to="all"):
        """Send a mail."""
        sent.append((order, to))
        return {"order": order, "to": to}

    with shift.app.app_context():
        assert send(1, to="a@test") == {"order": 1, "to": "a@test"}
        assert send(1, to="b@test") == {"order": 1, "to": "a@test"}
        assert send(2) == {"order": 2, "to": "all"}
    assert sent == [(1, "a@test"), (2, "all")]
    assert (send.__name__, send.__doc__) == ("send", "Send a mail.")


def test_an_async_function_runs_once_for_each_id(shift):
    sent = []

    @shift.idempotence.once("mail", key=lambda order: order)
    async def send(order):
        await asyncio.sleep(0)
        sent.append((order, current_guard.mode))
        return order * 2

    async def all_of_them():
        return [await send(order) for order in (1, 2, 1)]

    with shift.app.app_context():
        assert asyncio.run(all_of_them()) == [2, 4, 2]
    assert sent == [(1, "once"), (2, "once")]


def test_tasks_of_one_event_loop_meet_each_other(shift):
    @shift.idempotence.once("mail", key=lambda order: order)
    async def send(order):
        keys.append(current_guard.key)
        await asyncio.sleep(0.05)
        assert current_guard.key in keys
        return order

    async def all_of_them():
        return await asyncio.gather(*map(send, (1, 1, 2, 2)), return_exceptions=True)

    keys = []
    with shift.app.app_context():
        came_of_it = asyncio.run(all_of_them())
    assert [each for each in came_of_it if not isinstance(each, Running)] == [1, 2]
    assert [type(each) for each in came_of_it].count(Running) == 2
    assert len(set(keys)) == 2


def test_a_decorated_function_with_a_fixed_id_runs_once():
    shift, ran = Shift(), []

    @shift.idempotence.once("migration", "2026-11")
    def migrate():
        ran.append(1)

    with shift.app.app_context():
        assert [migrate() for _ in range(3)] == [None] * 3
    assert ran == [1]


def test_a_decorated_function_that_fails_may_be_called_again():
    shift, attempts = Shift(), []

    @shift.idempotence.once("mail", key=lambda order: order)
    def send(order):
        attempts.append(order)
        if len(attempts) == 1:
            raise OSError("the post is closed")
        return "sent"

    with shift.app.app_context():
        with pytest.raises(OSError, match="closed"):
            send(1)
        assert [send(1), send(1)] == ["sent", "sent"]
    assert attempts == [1, 1]


def test_a_decorated_method_gets_its_self():
    shift = Shift()

    class Post:
        @shift.idempotence.once("mail", key=lambda self, order: order)
        def send(self, order):
            return [type(self).__name__, order]

    with shift.app.app_context():
        assert Post().send(3) == Post().send(3) == ["Post", 3]


def generates():
    yield 1


async def waits():
    await asyncio.sleep(0)


async def generates_later():
    yield 1


@pytest.mark.parametrize("what", [generates, generates_later, Shift, 7])
def test_what_does_not_return_when_it_is_done_cannot_be_decorated(what):
    with pytest.raises(TypeError, match="decorates a function"):
        Shift().once()(what)


def test_a_function_that_only_promises_to_work_is_not_counted_as_done():
    shift = Shift()

    class Promise:
        def __init__(self, begin):
            self.begin = begin

        def __call__(self):
            return self.begin()

    for begin in (waits, generates, generates_later):
        promise = shift.once()(Promise(begin))
        with shift.app.app_context(), pytest.raises(TypeError, match="has not done its work"):
            promise()
    assert shift.word() == "first"


@pytest.mark.parametrize("toggle", [False, "false"])
def test_switched_off_everybody_is_the_first_and_the_store_is_not_asked(toggle):
    shift = Shift()
    events = events_of(shift.app)
    shift.app.config["IDEMPOTENCE_ENABLED"] = toggle
    assert [shift.work(result=7) for _ in range(2)] == [(True, 7)] * 2
    with shift.app.app_context(), shift.once():
        assert (current_guard.mode, current_guard.key) == (None, None)
        current_guard.ensure_held()
        assert shift.word() == "first"
    assert not list(shift.store.scan(""))
    assert events == []


def test_another_mode_that_is_off_does_not_matter():
    shift = Shift(IDEMPOTENCE_KEY_ENABLED=False, IDEMPOTENCE_LOCK_ENABLED=False)
    assert [shift.word(), shift.word()] == ["first", "done"]


def test_an_application_without_the_extension_is_told_of_it():
    job = Shift().once(uuid4())
    with bare_app().app_context(), pytest.raises(ConfigurationError, match="not registered"):
        job.__enter__()
