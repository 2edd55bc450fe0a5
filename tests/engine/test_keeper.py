"""The keeper: leases are renewed while views run, and never after they were settled."""

import os
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from helpers.apps import make_app
from helpers.keeper_harness import KeeperHarness, leased_claim

from flask_idempotence import MemoryStore, StoreError, no_repeat_submit
from flask_idempotence.engine.claim import Attempt
from flask_idempotence.engine.keeper import MAX_FAILURES, NO_THREADS, PendingSettlement
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


class ClaimingHarness(KeeperHarness):
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
    harness = ClaimingHarness(lease=30)
    hold = harness.hold(lease=1)
    harness.pass_time(0.2)
    assert harness.store.batches == 0
    harness.pass_time(0.2)
    assert harness.store.batches == 1
    assert hold.lease.length == 30
    harness.pass_time(100)
    assert 9 <= harness.store.batches <= 14
    assert isinstance(harness.rival(), Running)


def test_what_is_no_longer_watched_is_not_renewed():
    harness = ClaimingHarness(lease=1)
    hold = harness.hold()
    assert harness.keeper.unwatch(hold)
    harness.pass_time(1.1)
    assert harness.store.batches == 0
    assert harness.rival() == Claimed()


def test_many_leases_are_renewed_in_few_batches():
    harness = ClaimingHarness(lease=30)
    for number in range(1000):
        harness.hold(f"k{number}", lease=30)
        harness.clock.advance(0.01)
    harness.store.batches = 0
    harness.pass_time(60)
    assert harness.store.batches <= 40
    assert len(list(harness.store.scan("k"))) == 1000


def test_a_lost_lease_is_said_once_and_renewed_no_more():
    harness = ClaimingHarness(lease=1)
    hold = harness.hold()
    harness.store.remove("k")
    assert harness.rival() == Claimed()
    with record_signals(harness.app) as signals:
        harness.pass_time(3)
    assert signals.events == [
        ("lease_lost", {"mode": "lock", "endpoint": "view", "key": "k", "during": "renew"})
    ]
    assert hold.lost
    assert harness.store.batches == 1


@pytest.mark.parametrize(
    ("version", "options", "warnings"),
    [
        (b"2.0.26", {}, 1),
        (b"2.0.26", {"enable-threads": b"off"}, 1),
        (b"2.0.26", {"enable-threads": True}, 0),
        (b"2.0.26", {"threads": b"4"}, 0),
        (b"2.0.26", {"gevent": b"10"}, 0),
        (b"2.0.27", {}, 0),
    ],
)
def test_it_says_once_that_its_server_keeps_threads_from_running(
    monkeypatch, caplog, version, options, warnings
):
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(version=version, opt=options))
    keeper = ClaimingHarness().keeper
    for _ in range(2):
        keeper._start(threading.Thread(target=int))
    assert [record.message for record in caplog.records] == [NO_THREADS] * warnings


def test_it_survives_a_store_that_is_away_and_comes_back():
    harness = ClaimingHarness(lease=6)
    hold = harness.hold(lease=6)
    harness.store.away = True
    with record_signals(harness.app) as signals:
        harness.pass_time(4)
    assert signals.count("store_failed") >= 2
    harness.store.away = False
    harness.pass_time(10)
    assert not hold.lost
    assert isinstance(harness.rival(), Running)


def test_nothing_is_held_for_longer_than_the_longest_hold(caplog):
    harness = ClaimingHarness(lease=10, max_hold=60)
    harness.hold(lease=10)
    harness.pass_time(59)
    assert isinstance(harness.rival(), Running)
    harness.pass_time(15)
    assert harness.rival() == Claimed()
    told = [record for record in caplog.records if "IDEMPOTENCE_MAX_HOLD" in record.message]
    assert [record.levelname for record in told] == ["ERROR"]


def test_an_unanswered_settlement_is_repeated_until_the_store_answers():
    harness = ClaimingHarness()
    answers = [StoreError("away"), StoreError("away"), Outcome.OK]
    outcomes = []

    def call():
        answer = answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    attempt = Attempt(harness.app, "lock", "view")
    until = harness.clock() + 30
    harness.keeper.retry(PendingSettlement(attempt, "release", call, until, outcomes.append))
    harness.pass_time(2)
    assert outcomes == [Outcome.OK]
    assert answers == []


@pytest.mark.parametrize(("error", "tries"), [(StoreError("away"), 3), (ValueError("ours"), 1)])
def test_a_settlement_is_given_up_when_it_no_longer_matters_or_by_another_error(error, tries):
    harness = ClaimingHarness()
    calls, outcomes = [], []

    def call():
        calls.append(harness.clock())
        raise error

    attempt, until = Attempt(harness.app, "lock", "view"), harness.clock() + 1.7
    harness.keeper.retry(PendingSettlement(attempt, "release", call, until, outcomes.append))
    harness.pass_time(5, step=0.25)
    assert len(calls) == tries
    assert outcomes == [None]


class Pending:
    """Settlements of one keeper: some that are refused for ever, and some that are not."""

    def __init__(self):
        self.harness = ClaimingHarness()
        self.calls, self.done = [], []

    def add(self, name, *, refused):
        def call():
            self.calls.append(name)
            if refused:
                raise StoreError("refused")
            return Outcome.OK

        attempt = Attempt(self.harness.app, "lock", "view")
        until = self.harness.clock() + 3600
        ended = lambda outcome: self.done.append(name)  # noqa: E731 - a callback
        self.harness.keeper.retry(PendingSettlement(attempt, "release", call, until, ended))


def test_what_is_refused_for_ever_does_not_keep_others_waiting():
    pending = Pending()
    for number in range(MAX_FAILURES - 1):
        pending.add(number, refused=True)
    pending.add("good", refused=False)
    pending.harness.pass_time(0.5, step=0.25)
    assert pending.done == ["good"]


def test_however_many_are_refused_everybody_has_a_turn():
    pending = Pending()
    for number in range(10 * MAX_FAILURES):
        pending.add(number, refused=True)
    pending.add("good", refused=False)
    pending.harness.pass_time(5.5, step=0.25)
    assert pending.done == ["good"]


def test_a_store_that_is_away_is_asked_a_few_times_a_round_only():
    pending = Pending()
    for number in range(500):
        pending.add(number, refused=True)
    pending.harness.pass_time(5, step=0.05)
    assert len(pending.calls) <= 10 * MAX_FAILURES
    assert len(set(pending.calls)) == len(pending.calls)  # each has its turn


def test_a_few_that_are_refused_are_tried_twice_a_second():
    pending = Pending()
    for number in range(3):
        pending.add(number, refused=True)
    pending.harness.pass_time(2.2, step=0.05)
    assert pending.calls == [0, 1, 2] * 4


def test_a_settlement_waits_for_the_renewal_under_way():
    """A renewal that arrives after the settlement would bring a dead lease back to life."""
    harness = ClaimingHarness(lease=30)
    hold = harness.hold(lease=1)
    under_way, go_on = threading.Event(), threading.Event()
    renew = harness.store.renew

    def slow(renewals):
        under_way.set()
        go_on.wait(5)
        return renew(renewals)

    harness.store.renew = slow
    harness.clock.advance(0.5)
    ticking = threading.Thread(target=harness.keeper.tick)
    ticking.start()
    under_way.wait(5)
    assert not harness.keeper.unwatch(hold, timeout=0.05)
    quiet = []
    waiting = threading.Thread(
        target=lambda: quiet.append(harness.keeper.unwatch(hold, timeout=5))
    )
    waiting.start()
    time.sleep(0.1)
    go_on.set()
    waiting.join(2)  # no longer than the renewal takes
    ticking.join()
    assert quiet == [True]
    assert hold.was_renewed


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
    hold = leased_claim(app, 1, time.monotonic())
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
    hold = leased_claim(app, 0.03, time.monotonic())
    keeper.watch(hold)
    deadline = time.monotonic() + 5
    while len(ticks) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    keeper.unwatch(hold)
    assert len(ticks) >= 2
    assert "The keeper failed, and continues." in caplog.text
