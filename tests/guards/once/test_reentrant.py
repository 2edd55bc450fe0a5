"""`once` within itself: in the same thread, task and request a part of the outer block."""

import asyncio
import contextvars
import os

import pytest
from helpers.every_store import EVERY_STORE, storage_settings
from helpers.once_operations import OnceApp, elsewhere

from flask_idempotence import LeaseLost, Running, current_guard
from flask_idempotence.testing import record_signals


@pytest.fixture
def once_app():
    return OnceApp()


@pytest.mark.parametrize("kind", EVERY_STORE)
def test_the_inner_block_is_a_part_of_the_outer_one(kind, request):
    once_app = OnceApp(**storage_settings(kind, request))
    with record_signals(once_app.app) as told:
        with once_app.app.app_context(), once_app.once() as outer:
            with once_app.once() as inner, once_app.once() as innermost:
                assert outer.first
                assert inner.first
                assert innermost.first
                inner.result = "own"
                assert [inner.result, innermost.result, outer.result] == ["own", None, None]
            assert current_guard.mode == "once"
            assert once_app.word() == "running"
            outer.result = "of the outer"
        assert once_app.work() == (False, "of the outer")
    assert told.names == ["claimed", "rejected", "completed", "replayed"]


def test_a_block_of_another_application_is_none_of_its_own(once_app):
    other = OnceApp()
    with once_app.app.app_context(), once_app.once(), other.app.app_context():
        with other.once() as job:
            assert job.first
        assert not other.work()[0]


def test_another_task_is_another_caller(once_app):
    async def attempt(name):
        try:
            with once_app.once(name) as job:
                await asyncio.sleep(0)
                return job.first
        except Running:
            return "running"

    async def main():
        with once_app.once("parent"):  # around all of them, and of another name
            several = await asyncio.gather(*[attempt("child") for _ in range(5)])
            return several, await asyncio.create_task(attempt("parent")), await attempt("parent")

    with once_app.app.app_context():
        assert asyncio.run(main()) == ([True, *["running"] * 4], "running", True)
    assert once_app.word("parent") == "done"


@pytest.mark.parametrize("kind", ["once", "lock"])
def test_a_task_that_outlives_the_block_learns_that_it_has_ended(once_app, kind):
    def begin():
        return once_app.once() if kind == "once" else once_app.idempotence.lock("1")

    async def late(begun):
        current_guard.ensure_held()
        await begun.wait()
        with pytest.raises(LeaseLost):
            current_guard.ensure_held()
        with once_app.app.test_request_context("/"):  # which has nothing to do with it
            current_guard.ensure_held()
        with once_app.once("another"):
            current_guard.ensure_held()

    async def main():
        begun = asyncio.Event()
        with begin():
            task = asyncio.create_task(late(begun))
            await asyncio.sleep(0)
        current_guard.ensure_held()
        begun.set()
        await task

    with once_app.app.app_context():
        asyncio.run(main())


@pytest.mark.parametrize("where", [elsewhere, lambda end: contextvars.copy_context().run(end)])
def test_a_block_that_ends_in_another_thread_or_context_is_over(once_app, where):
    def pieces():
        with once_app.once():
            yield

    with once_app.app.app_context():
        next(begun := pieces())
        assert current_guard.mode == "once"
        where(begun.close)
        assert current_guard.mode is None
        current_guard.ensure_held()


def test_a_forked_child_is_another_caller_and_holds_nothing(once_app):
    with once_app.app.app_context(), once_app.once():
        pid = os.fork()
        if not pid:
            try:
                with pytest.raises(LeaseLost):
                    current_guard.ensure_held()
                with pytest.raises(Running), once_app.once():
                    pass
                os._exit(0)
            finally:
                os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0
        current_guard.ensure_held()
        assert once_app.word() == "running"


def test_a_block_that_is_known_to_be_lost_has_no_part(once_app):
    with once_app.app.app_context(), once_app.once():
        [key] = once_app.store.scan("")
        once_app.store.clear("")
        with pytest.raises(LeaseLost):
            current_guard.ensure_held()
        once_app.store.claim(key, b"r" * 16, bytes(16), 60, 0)
        with pytest.raises(Running), once_app.once():
            pass
