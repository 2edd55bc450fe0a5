"""The keeper: leases are renewed while views run, and never after they were settled."""

import os
import signal
import threading
import time

import pytest
from apps import make_app
from nursery import Nursery

from flask_idempotence import MemoryStore, StoreError, no_repeat_submit
from flask_idempotence.engine.claim import Attempt, Hold
from flask_idempotence.engine.retry_queue import MAX_FAILURES, PendingSettlement
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Outcome, Running
from flask_idempotence.testing import FakeClock, record_signals


class FlakyStore(MemoryStore):
    """A real store that can be told to be away, and that counts its renewals."""

    away = False
    batches = 0

    def renew(self, renewals):
        self.batches += 1
        if self.away:
            raise StoreError("away")
        return super().renew(renewals)


class ClaimingNursery(Nursery):
    """One whose holds are really claimed, in a store that can be told to be away."""

    def __init__(self, **settings):
        clock = FakeClock()
        super().__init__(FlakyStore(clock=clock), clock=clock, **settings)

    def hold(self, key="k", *, lease=1.0):
        hold = super().hold(key, lease=lease)
        assert self.store.claim(key, hold.owner, NO_FINGERPRINT, lease, 0) == Claimed()
        return hold

    def rival(self, key="k"):
        return self.store.claim(key, os.urandom(16), NO_FINGERPRINT, 1, 0)


def test_a_lease_of_a_second_is_raised_at_a_third_and_then_renewed_at_every_third():
    nursery = ClaimingNursery(lease=30)
    hold = nursery.hold(lease=1)
    nursery.pass_time(0.2)
    assert nursery.store.batches == 0
    nursery.pass_time(0.2)
    assert nursery.store.batches == 1
    assert hold.lease == 30
    nursery.pass_time(100)
    assert 9 <= nursery.store.batches <= 14
    assert isinstance(nursery.rival(), Running)


def test_a_view_that_runs_ten_times_its_lease_keeps_its_claim():
    nursery = ClaimingNursery(lease=0.6)
    hold = nursery.hold(lease=0.6)
    for _ in range(60):
        nursery.pass_time(0.1)
        assert isinstance(nursery.rival(), Running)
    assert not hold.lost


def test_what_is_no_longer_watched_is_not_renewed():
    nursery = ClaimingNursery(lease=1)
    hold = nursery.hold()
    assert nursery.keeper.unwatch(hold)
    nursery.pass_time(1.1)
    assert nursery.store.batches == 0
    assert nursery.rival() == Claimed()


def test_many_leases_are_renewed_in_few_batches():
    nursery = ClaimingNursery(lease=30)
    for number in range(1000):
        nursery.hold(f"k{number}", lease=30)
        nursery.clock.advance(0.01)
    nursery.store.batches = 0
    nursery.pass_time(60)
    assert nursery.store.batches <= 40
    assert len(list(nursery.store.scan("k"))) == 1000


def test_a_lost_lease_is_said_once_and_renewed_no_more():
    nursery = ClaimingNursery(lease=1)
    hold = nursery.hold()
    nursery.store.remove("k")
    assert nursery.rival() == Claimed()
    with record_signals(nursery.app) as signals:
        nursery.pass_time(3)
    assert signals.events == [
        ("lease_lost", {"mode": "lock", "endpoint": "view", "key": "k", "during": "renew"})
    ]
    assert hold.lost
    assert nursery.store.batches == 1


def test_it_survives_a_store_that_is_away_and_comes_back():
    nursery = ClaimingNursery(lease=6)
    hold = nursery.hold(lease=6)
    nursery.store.away = True
    with record_signals(nursery.app) as signals:
        nursery.pass_time(4)
    assert signals.count("store_failed") >= 2
    nursery.store.away = False
    nursery.pass_time(10)
    assert not hold.lost
    assert isinstance(nursery.rival(), Running)


def test_nothing_is_held_for_longer_than_the_longest_hold():
    nursery = ClaimingNursery(lease=10, max_hold=60)
    nursery.hold(lease=10)
    nursery.pass_time(59)
    assert isinstance(nursery.rival(), Running)
    nursery.pass_time(15)
    assert nursery.rival() == Claimed()


def test_an_unanswered_settlement_is_repeated_until_the_store_answers():
    nursery = ClaimingNursery()
    answers = [StoreError("away"), StoreError("away"), Outcome.OK]
    outcomes = []

    def call():
        answer = answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    attempt = Attempt(nursery.app, "lock", "view")
    until = nursery.clock() + 30
    nursery.keeper.finish(PendingSettlement(attempt, "release", call, until, outcomes.append))
    nursery.pass_time(2)
    assert outcomes == [Outcome.OK]
    assert answers == []


def test_an_unanswered_settlement_is_given_up_when_it_no_longer_matters():
    nursery = ClaimingNursery()
    calls = []

    def call():
        calls.append(nursery.clock())
        raise StoreError("away")

    attempt = Attempt(nursery.app, "lock", "view")
    nursery.keeper.finish(PendingSettlement(attempt, "release", call, nursery.clock() + 1.7))
    nursery.pass_time(5, step=0.25)
    assert len(calls) == 3


class Pending:
    """Settlements of one keeper: some that are refused for ever, and some that are not."""

    def __init__(self):
        self.nursery = ClaimingNursery()
        self.calls, self.done = [], []

    def add(self, name, *, refused):
        def call():
            self.calls.append(name)
            if refused:
                raise StoreError("refused")
            return Outcome.OK

        attempt = Attempt(self.nursery.app, "lock", "view")
        until = self.nursery.clock() + 3600
        ended = lambda outcome: self.done.append(name)  # noqa: E731 - a callback
        self.nursery.keeper.finish(PendingSettlement(attempt, "release", call, until, ended))


def test_what_is_refused_for_ever_does_not_keep_others_waiting():
    pending = Pending()
    for number in range(MAX_FAILURES - 1):
        pending.add(number, refused=True)
    pending.add("good", refused=False)
    pending.nursery.pass_time(0.5, step=0.25)
    assert pending.done == ["good"]


def test_however_many_are_refused_everybody_has_a_turn():
    pending = Pending()
    for number in range(10 * MAX_FAILURES):
        pending.add(number, refused=True)
    pending.add("good", refused=False)
    pending.nursery.pass_time(5.5, step=0.25)
    assert pending.done == ["good"]


def test_a_store_that_is_away_is_asked_a_few_times_a_round_only():
    pending = Pending()
    for number in range(500):
        pending.add(number, refused=True)
    pending.nursery.pass_time(5, step=0.05)
    assert len(pending.calls) <= 10 * MAX_FAILURES
    assert len(set(pending.calls)) == len(pending.calls)  # each has its turn


def test_a_few_that_are_refused_are_tried_twice_a_second():
    pending = Pending()
    for number in range(3):
        pending.add(number, refused=True)
    pending.nursery.pass_time(2.2, step=0.05)
    assert pending.calls == [0, 1, 2] * 4


def test_a_settlement_waits_for_the_renewal_under_way():
    """A renewal that arrives after the settlement would bring a dead lease back to life."""
    nursery = ClaimingNursery(lease=30)
    hold = nursery.hold(lease=1)
    under_way, go_on = threading.Event(), threading.Event()
    renew = nursery.store.renew

    def slow(renewals):
        under_way.set()
        go_on.wait(5)
        return renew(renewals)

    nursery.store.renew = slow
    nursery.clock.advance(0.5)
    ticking = threading.Thread(target=nursery.keeper.tick)
    ticking.start()
    under_way.wait(5)
    assert not nursery.keeper.unwatch(hold, timeout=0.05)
    quiet = []
    waiting = threading.Thread(target=lambda: quiet.append(nursery.keeper.unwatch(hold)))
    waiting.start()
    go_on.set()
    waiting.join()
    ticking.join()
    assert quiet == [True]
    assert hold.renewed


def test_one_thread_serves_all_views_and_ends_when_idle(monkeypatch):
    monkeypatch.setattr("flask_idempotence.engine.keeper.IDLE_TIMEOUT", 0.2)
    before = set(threading.enumerate())
    app = make_app(IDEMPOTENCE_LEASE=0.6)
    keeper = app.extensions["idempotence"].engine.keeper
    running, finish = threading.Barrier(6), threading.Event()

    @app.post("/<int:number>")
    @no_repeat_submit(interval=0.5)
    def view(number):
        running.wait()
        finish.wait(5)
        return {}

    posts = [
        threading.Thread(target=app.test_client().post, args=(f"/{number}",))
        for number in range(5)
    ]
    for post in posts:
        post.start()
    running.wait()
    time.sleep(1.5)  # two leases and a half, on the real clock
    started = set(threading.enumerate()) - before
    assert [thread.name for thread in started if "keeper" in thread.name] == [
        "flask-idempotence-keeper"
    ]
    assert app.test_client().post("/0").status_code == 409
    finish.set()
    for post in posts:
        post.join()
    deadline = time.monotonic() + 5
    while keeper._thread is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert keeper._thread is None


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_process_keeps_nothing_of_its_parents(monkeypatch):
    app = make_app()
    keeper = app.extensions["idempotence"].engine.keeper
    hold = Hold(None, None, Attempt(app, "lock", "view"), "k")
    hold.begin_lease(1, time.monotonic())
    keeper._changed.acquire()  # as if another thread were in the middle of something
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        fresh = not keeper._held and keeper._thread is None
        keeper.watch(hold)  # would hang on the parent's lock
        os._exit(0 if fresh and keeper._thread is not None else 1)
    keeper._changed.release()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_it_goes_on_after_an_error_of_our_own(monkeypatch, caplog):
    monkeypatch.setattr("flask_idempotence.engine.keeper.RETRY_EVERY", 0.01)
    app = make_app()
    keeper = app.extensions["idempotence"].engine.keeper
    ticks = []

    def tick():
        ticks.append(1)
        if len(ticks) == 1:
            raise RuntimeError("a bug")

    keeper.tick = tick
    hold = Hold(None, None, Attempt(app, "lock", "view"), "k")
    hold.begin_lease(0.03, time.monotonic())
    keeper.watch(hold)
    deadline = time.monotonic() + 5
    while len(ticks) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    keeper.unwatch(hold)
    assert len(ticks) >= 2
    assert "The keeper failed, and goes on." in caplog.text
