"""What applications do that is easily forgotten."""

import gc
import threading

import pytest
from flask import (
    Response,
    abort,
    copy_current_request_context,
    g,
)
from helpers.apps import make_app
from helpers.keeper_harness import leased_claim

from flask_idempotence import (
    LeaseLost,
    MemoryStore,
    StoreError,
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


class TestContexts:
    @pytest.mark.parametrize("helper_fails", [True, False])
    def test_a_thread_with_a_copy_of_the_context_settles_nothing(self, helper_fails):
        app, codes = make_app(), []

        @app.post("/")
        @no_repeat_submit(60)
        def view():
            @copy_current_request_context
            def helper():
                if helper_fails:
                    raise ValueError

            def quiet():
                try:
                    helper()
                except ValueError:
                    codes.append("failed")

            thread = threading.Thread(target=quiet)
            thread.start()
            thread.join()
            codes.append(post(app))
            abort(400)

        assert post(app) == 400
        assert codes == (["failed"] if helper_fails else []) + [409]
        codes.clear()
        assert post(app) == 400  # released by the real end of the first

    def test_a_teardown_function_that_raises_keeps_ours_from_nothing(self):
        app, runs = make_app(PROPAGATE_EXCEPTIONS=True), []

        @app.teardown_request
        def remove(error):
            raise OSError("the database is away")

        @app.post("/")
        @no_repeat_submit(60)
        def view():
            runs.append(1)
            raise ValueError

        for _ in range(3):
            with pytest.raises(OSError, match="away"):
                post(app)
        assert len(runs) == 3

    def test_a_view_that_is_called_in_a_test_context_settles_at_its_end(self):
        app, runs = make_app(), []

        @app.post("/")
        @no_repeat_submit(60)
        def view():
            runs.append(1)
            raise ValueError("the view's own")

        for _ in range(2):
            with (
                app.test_request_context("/", method="POST"),
                pytest.raises(ValueError, match="own"),
            ):
                view()
        assert len(runs) == 2


class TestCurrentGuard:
    def test_being_held_is_about_every_guard_around(self):
        store, lost = MemoryStore(), []
        app = make_app(store=store)

        @app.post("/")
        @no_repeat_submit(60)
        @one_time_token()
        def view():
            store.clear("idempotence:2:lock")
            try:
                current_guard.ensure_held()
            except LeaseLost:
                lost.append(True)
            return {}

        token = app.test_client().get("/token").json["token"]
        assert post(app, headers={"Idempotence-Token": token}) == 200
        assert lost == [True]


class TestPathArguments:
    @pytest.mark.parametrize("options", [{}, {"only": ["shop"]}, {"ignore": ["note"]}], ids=str)
    def test_what_a_preprocessor_takes_out_counts_all_the_same(self, options):
        app = make_app()

        @app.url_value_preprocessor
        def pull(endpoint, values):
            if values:
                g.shop = values.pop("shop", None)

        @app.post("/<shop>/orders")
        @no_repeat_submit(60, **options)
        def order():
            return {}

        assert [post(app, "/acme/orders"), post(app, "/globex/orders")] == [200, 200]
        assert [post(app, "/acme/orders"), post(app, "/globex/orders")] == [409, 409]


class TestTokenUrl:
    def test_the_same_path_on_another_subdomain_is_no_collision(self):
        app = make_app(subdomain_matching=True, SERVER_NAME="example.com")
        app.add_url_rule("/token", "own", lambda: "own", subdomain="api")
        client = app.test_client()
        assert client.get("/token", base_url="http://example.com").status_code == 200
        assert client.get("/token", base_url="http://api.example.com").text == "own"

    def test_it_answers_on_every_host_where_hosts_are_matched(self):
        app = make_app(host_matching=True)
        for host in ("a.example", "b.example"):
            answer = app.test_client().get("/token", base_url=f"http://{host}")
            assert answer.status_code == 200

    def test_head_issues_nothing(self):
        store = MemoryStore()
        app = make_app(store=store)
        answer = app.test_client().head("/token")
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
        assert store.count_all() == 0


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
        for begin in (
            lambda: keeper.watch(hold),
            lambda: keeper.retry(unsettled),
            lambda: keeper.defer(int),
        ):
            keeper._thread = None
            begin()
        assert held == [False] * 3

    def test_a_claim_that_was_never_sent_is_not_taken_back(self):
        class Unreachable(MemoryStore):
            sent = False

            def claim(self, *arguments, **options):
                raise StoreError("away", sent=self.sent)

        store = Unreachable()
        app = make_app(store=store)
        keeper = app.extensions["idempotence"].engine.keeper
        keeper._schedule = lambda at: None

        @app.post("/")
        @no_repeat_submit(5)
        def view():
            return {}

        assert post(app) == 503
        assert len(keeper._retry_queue) == 0
        store.sent = True
        assert post(app) == 503
        assert len(keeper._retry_queue) == 1

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
