"""What applications do that is easily forgotten."""

import contextlib
import gc
import threading

import pytest
from flask import Response, abort, copy_current_request_context
from helpers.apps import fail, make_app
from helpers.keeper_harness import leased_claim

from flask_idempotence import (
    LeaseLost,
    MemoryStore,
    current_guard,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.engine.claim import Attempt
from flask_idempotence.engine.keeper import PendingSettlement
from flask_idempotence.stores.base import Outcome
from flask_idempotence.testing import FakeClock


def post(app, path="/", **options):
    return app.test_client().post(path, **options).status_code


@pytest.mark.parametrize("helper_fails", [True, False])
def test_a_thread_with_a_copy_of_the_context_settles_nothing(helper_fails):
    app, codes = make_app(), []

    @app.post("/")
    @no_repeat_submit(60)
    def view():
        @copy_current_request_context
        def helper():
            if helper_fails:
                raise ValueError

        def quiet():
            with contextlib.suppress(ValueError):
                helper()

        thread = threading.Thread(target=quiet)
        thread.start()
        thread.join()
        codes.append(post(app))
        abort(400)

    assert [post(app), post(app)] == [400, 400]  # released by the real end of the first
    assert codes == [409, 409]


def test_a_teardown_function_that_raises_keeps_ours_from_nothing():
    app, runs = make_app(PROPAGATE_EXCEPTIONS=True), []

    @app.teardown_request
    def remove(error):
        raise OSError("the database is away")

    @app.post("/")
    @no_repeat_submit(60)
    def view():
        runs.append(1)
        fail()

    for _ in range(3):
        with pytest.raises(OSError, match="away"):
            post(app)
    assert len(runs) == 3


def test_a_view_that_is_called_in_a_test_context_settles_at_its_end():
    app, runs = make_app(), []

    @app.post("/")
    @no_repeat_submit(60)
    def view():
        runs.append(1)
        fail()

    for _ in range(2):
        with app.test_request_context("/", method="POST"), pytest.raises(ValueError, match="view"):
            view()
    assert len(runs) == 2


def test_being_held_is_about_every_guard_around():
    store, lost = MemoryStore(), []
    app = make_app(store=store)

    @app.post("/")
    @no_repeat_submit(60)
    @one_time_token()
    def view():
        store.clear("idempotence:2:lock")
        with pytest.raises(LeaseLost):
            current_guard.ensure_held()
        lost.append(True)
        return {}

    token = app.test_client().get("/token").json["token"]
    assert post(app, headers={"Idempotence-Token": token}) == 200
    assert lost == [True]


def test_the_garbage_collector_may_find_a_dropped_response_anywhere():
    """It runs in the middle of anything, also where a lock is held that settling would need."""

    class InACycle(Response):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.me = self

    app = make_app()

    @app.post("/<int:number>")
    @no_repeat_submit(60, failed=lambda response: True)
    def view(number):
        return InACycle(iter(["a"]))

    @app.after_request
    def replace(response):
        return Response("replaced")

    def send():
        client = app.test_client()
        for number in range(400):
            client.post(f"/{number}")

    before = gc.get_threshold()
    gc.set_threshold(7)
    thread = threading.Thread(target=send, daemon=True)
    try:
        thread.start()
        thread.join(60)
    finally:
        gc.set_threshold(*before)
    assert not thread.is_alive(), "deadlock"


class TestKeeperInTrouble:
    def test_its_thread_is_never_started_while_its_lock_is_held(self, monkeypatch):
        """Where threads are greenlets, starting one switches to it, and it wants the lock."""
        app, held = make_app(), []
        keeper = app.extensions["idempotence"].engine.keeper
        hold = leased_claim(app, 30, 0)
        unsettled = PendingSettlement(Attempt(app, "lock", "v"), "release", lambda: Outcome.OK, 0)

        def watched(thread):
            held.append(keeper._changed._lock.locked())

        monkeypatch.setattr(threading.Thread, "start", watched)
        for begin, work in (
            (keeper.watch, hold),
            (keeper.retry, unsettled),
            (keeper.defer, int),
        ):
            keeper._thread = None
            begin(work)
        assert held == [False] * 3

    def test_leases_do_not_wait_for_a_long_list_of_settlements(self):
        app, clock = make_app(), FakeClock()
        clock.rule(app)
        keeper = app.extensions["idempotence"].engine.keeper
        keeper._schedule = lambda at: None
        done = []

        def slow():
            clock.advance(0.03)
            done.append(1)
            return Outcome.OK

        for _ in range(100):
            keeper.retry(
                PendingSettlement(Attempt(app, "lock", "v"), "release", slow, clock() + 60)
            )
        clock.advance(1)
        keeper.tick()
        assert 1 <= len(done) <= 5
        for _ in range(40):
            keeper.tick()
        assert len(done) == 100
