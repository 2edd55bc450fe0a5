"""The keeper and the settlements: what is waited for, what is repeated, and for how long."""

import threading
import time

import pytest
from helpers.apps import make_app
from helpers.keeper_harness import KeeperHarness, leased_claim
from helpers.servers.processes import until

from flask_idempotence import (
    MemoryStore,
    StoreError,
    idempotent,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.engine.claim import Attempt
from flask_idempotence.engine.keeper import PendingSettlement
from flask_idempotence.stores.base import Outcome
from flask_idempotence.testing import token_for


class Renewing(MemoryStore):
    """A store that notes the renewals it is asked for."""

    shared = True

    def __init__(self, renew=lambda: None):
        super().__init__()
        self.asked = 0
        self._renew = renew

    def renew(self, renewals):
        self.asked += 1
        self._renew()
        return [Outcome.OK] * len(renewals)


class TestKeeper:
    def test_a_store_that_is_away_is_not_asked_more_often_than_every_half_second(self):
        def away():
            raise StoreError("away")

        store = Renewing(away)
        harness = KeeperHarness(store, lease=6)
        harness.hold(lease=6)
        harness.pass_time(4, step=0.05)
        assert 3 <= store.asked <= 5

    def test_a_short_lease_wakes_the_keeper_out_of_a_long_sleep(self):
        app = make_app(store=Renewing())
        keeper = app.extensions["idempotence"].engine.keeper
        keeper.watch(long := leased_claim(app, 20, time.monotonic()))
        time.sleep(0.1)
        keeper.watch(short := leased_claim(app, 0.6, time.monotonic()))
        assert until(lambda: short.was_renewed, 2)
        assert not long.was_renewed
        for hold in (long, short):
            keeper.unwatch(hold)

    def test_what_the_garbage_collector_defers_waits_for_no_lock(self):
        app, done = make_app(), []
        keeper = app.extensions["idempotence"].engine.keeper

        def collected_inside():
            with keeper._changed:
                keeper.defer(lambda: done.append(1))

        thread = threading.Thread(target=collected_inside, daemon=True)
        thread.start()
        thread.join(5)
        assert not thread.is_alive(), "deadlock"
        keeper.tick()
        assert done == [1]

    def test_a_keeper_that_could_not_start_is_alive_after_the_next_work(self, monkeypatch, caplog):
        app = make_app(store=Renewing())
        keeper = app.extensions["idempotence"].engine.keeper

        def refuse(thread):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        keeper.watch(leased_claim(app, 0.6, time.monotonic()))
        assert "leases are not being renewed" in caplog.text
        monkeypatch.undo()
        keeper.watch(hold := leased_claim(app, 0.6, time.monotonic()))
        assert keeper._thread.is_alive()
        assert until(lambda: hold.was_renewed, 2)
        keeper._forget()


class TestKeeperAndSettling:
    def test_an_outage_longer_than_its_idle_time_does_not_end_it(self, monkeypatch):
        monkeypatch.setattr("flask_idempotence.engine.keeper.IDLE_TIMEOUT", 0.2)
        monkeypatch.setattr("flask_idempotence.engine.keeper.RETRY_EVERY", 0.4)
        app, outcomes = make_app(), []
        keeper, back_at = app.extensions["idempotence"].engine.keeper, time.monotonic() + 1

        def call():
            if time.monotonic() < back_at:
                raise StoreError("away")
            return Outcome.OK

        keeper._pace = 0.1
        attempt, matters_until = Attempt(app, "lock", "view"), time.monotonic() + 60
        keeper.retry(PendingSettlement(attempt, "release", call, matters_until, outcomes.append))
        assert until(lambda: outcomes == [Outcome.OK])

    def test_a_settlement_never_overtakes_a_renewal_that_is_under_way(self, monkeypatch):
        store = MemoryStore()
        app = make_app(store=store)
        engine = app.extensions["idempotence"].engine
        monkeypatch.setattr(engine.keeper, "_schedule", lambda at: None)
        monkeypatch.setattr(engine.keeper, "unwatch", lambda hold, **options: False)
        view = no_repeat_submit(20)(lambda: ("no", 422))
        app.add_url_rule("/", "view", view, methods=["POST"])
        client = app.test_client()
        assert [client.post("/").status_code for _ in range(2)] == [422, 409]
        engine.keeper._retry_at = 0.0  # it is time
        engine.keeper.tick()
        assert client.post("/").status_code == 422

    @pytest.mark.parametrize("operation", ["release", "renew", "put_token", "complete"])
    def test_an_error_of_our_own_in_a_settlement_changes_no_answer(
        self, operation, monkeypatch, caplog
    ):
        store = MemoryStore()
        app = make_app(store=store)
        guard, status = {
            "release": (idempotent, 503),
            "renew": (no_repeat_submit(60), 200),  # longer than the lease
            "put_token": (one_time_token(restore_on_failure=True), 422),
            "complete": (idempotent, 422),
        }[operation]

        def broken(*arguments, **options):
            raise RuntimeError("a bug")

        app.add_url_rule("/", "view", guard(lambda: ("said", status)), methods=["POST"])
        client = app.test_client()
        headers = {"Idempotence-Token": token_for(client), "Idempotency-Key": "k"}
        monkeypatch.setattr(store, operation, broken)
        answer = client.post("/", headers=headers)
        # Only a result that a key should remember: clients take the header for the last word.
        stored = "false" if operation == "complete" else None
        assert (answer.status_code, answer.headers.get("Idempotent-Stored")) == (status, stored)
        assert "The settlement failed" in caplog.text

    def test_putting_a_token_back_is_not_left_to_the_keeper(self, monkeypatch):
        store = MemoryStore()
        app = make_app(store=store)
        keeper = app.extensions["idempotence"].engine.keeper
        monkeypatch.setattr(keeper, "_schedule", lambda at: None)
        view = one_time_token(restore_on_failure=True)(lambda: ("no", 422))
        app.add_url_rule("/", "view", view, methods=["POST"])
        client = app.test_client()
        headers = {"Idempotence-Token": client.get("/token").json["token"]}

        def away(*arguments, **options):
            raise StoreError("away")

        monkeypatch.setattr(store, "put_token", away)
        assert [client.post("/", headers=headers).status_code for _ in range(2)] == [422, 409]
        assert len(keeper._retry_queue) == 0
