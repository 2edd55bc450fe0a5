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
from helpers.servers.processes import until

from flask_idempotence import MemoryStore, StoreError, idempotent, no_repeat_submit, one_time_token
from flask_idempotence.engine.guard import Claim
from flask_idempotence.engine.keeper import MAX_FAILURES, NO_THREADS, PendingSettlement
from flask_idempotence.guards.lock import LockGuard
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Outcome, Running
from flask_idempotence.testing import FakeClock, record_signals, token_for


class FlakyStore(MemoryStore):
    """A real store that can be told to be away, and that counts its renewals."""

    away = False
    batches = 0

    def renew(self, renewals):
        self.batches += 1
        if self.away:
            raise StoreError("away")
        return super().renew(renewals)


class Renewing(MemoryStore):
    """A store that other processes share, and that renews whatever it is asked for."""

    shared = True

    def renew(self, renewals):
        return [Outcome.OK] * len(renewals)


def own_keeper(**settings):
    """Return an application, and its keeper with a thread of its own."""
    app = make_app(**settings)
    return app, app.extensions["idempotence"].engine.keeper


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
    assert hold.lease == 30
    harness.pass_time(100)
    assert 9 <= harness.store.batches <= 14
    assert isinstance(harness.rival(), Running)


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


@pytest.mark.parametrize(("version", "warnings"), [(b"2.0.26", 1), (b"2.0.27", 0)])
def test_it_says_once_that_its_server_keeps_threads_from_running(
    monkeypatch, caplog, version, warnings
):
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(version=version, opt={}))
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
    assert 3 <= signals.count("store_failed") <= 5  # it is asked every half second
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


def test_a_store_that_fails_at_one_key_keeps_no_other_lease_from_being_renewed():
    harness = ClaimingHarness(lease=1)
    harness.hold("odd")
    harness.hold("good")
    renew = harness.store.renew

    def fail_at_one(renewals):
        if any(renewal.key == "odd" for renewal in renewals):
            raise KeyError("a bug in the store")
        return renew(renewals)

    harness.store.renew = fail_at_one
    harness.pass_time(4)
    assert isinstance(harness.rival("good"), Running)
    assert harness.rival("odd") == Claimed()


AWAY = StoreError("away")


class Pending:
    """Settlements of one keeper, how often each was tried, and what became of it."""

    def __init__(self):
        self.harness = ClaimingHarness()
        self.calls, self.ended = [], []

    def add(self, name, *answers, lasts=3600, takes=0.0):
        """Add one that is answered so; the last answer is given again and again."""
        left = list(answers)

        def call():
            self.calls.append(name)
            self.harness.clock.advance(takes)
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        claim, until = Claim(self.harness.app, LockGuard(), "view"), self.harness.clock() + lasts
        ended = lambda outcome: self.ended.append((name, outcome))  # noqa: E731 - a callback
        self.harness.keeper.retry(PendingSettlement(claim, "release", call, until, ended))


@pytest.fixture
def pending():
    return Pending()


@pytest.mark.parametrize(
    ("answers", "tries", "outcome"),
    [
        ([AWAY, AWAY, Outcome.OK], 3, Outcome.OK),
        ([AWAY], 3, None),
        ([ValueError("ours")], 1, None),
    ],
)
def test_a_settlement_is_tried_until_it_is_answered_or_no_longer_matters(
    pending, answers, tries, outcome
):
    pending.add("one", *answers, lasts=1.7)
    pending.harness.pass_time(5, step=0.25)
    assert pending.calls == ["one"] * tries
    assert pending.ended == [("one", outcome)]


def test_however_many_are_refused_everybody_has_a_turn(pending):
    for number in range(10 * MAX_FAILURES):
        pending.add(number, AWAY)
    pending.add("good", Outcome.OK)
    pending.harness.pass_time(5.5, step=0.25)
    assert pending.ended == [("good", Outcome.OK)]


def test_a_store_that_is_away_is_asked_a_few_times_a_round_only(pending):
    for number in range(500):
        pending.add(number, AWAY)
    pending.harness.pass_time(5, step=0.05)
    assert len(pending.calls) <= 10 * MAX_FAILURES
    assert len(set(pending.calls)) == len(pending.calls)  # each has its turn


def test_a_few_that_are_refused_are_tried_twice_a_second(pending):
    for number in range(3):
        pending.add(number, AWAY)
    pending.harness.pass_time(2.2, step=0.05)
    assert pending.calls == [0, 1, 2] * 4


def test_leases_do_not_wait_for_a_long_list_of_settlements(pending):
    for number in range(100):
        pending.add(number, Outcome.OK, takes=0.03)
    pending.harness.clock.advance(1)
    pending.harness.keeper.tick()
    assert 1 <= len(pending.ended) <= 5
    for _ in range(40):
        pending.harness.keeper.tick()
    assert len(pending.ended) == 100


def test_its_thread_is_never_started_while_its_lock_is_held(monkeypatch):
    """Where threads are greenlets, starting one switches to it, and it wants the lock."""
    app, held = make_app(), []
    keeper, hold = app.extensions["idempotence"].engine.keeper, leased_claim(app, 30, 0)
    settlement = PendingSettlement(Claim(app, LockGuard(), "v"), "release", lambda: Outcome.OK, 0)
    monkeypatch.setattr(
        threading.Thread, "start", lambda _: held.append(keeper._changed._lock.locked())
    )
    for begin, work in ((keeper.watch, hold), (keeper.retry, settlement), (keeper.defer, int)):
        keeper._thread = None
        begin(work)
    assert held == [False] * 3


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
    app, keeper = own_keeper(IDEMPOTENCE_LEASE=3)
    running, finish = threading.Barrier(6), threading.Event()

    @app.post("/<int:number>")
    @no_repeat_submit(interval=3)
    def view(number):
        running.wait()
        finish.wait(60)
        return {}

    posts = [
        threading.Thread(target=app.test_client().post, args=(f"/{number}",))
        for number in range(5)
    ]
    for post in posts:
        post.start()
    running.wait()
    started = set(threading.enumerate()) - before
    assert [thread.name for thread in started if "keeper" in thread.name] == [
        "flask-idempotence-keeper"
    ]
    assert app.test_client().post("/0").status_code == 409
    finish.set()
    for post in posts:
        post.join()
    assert until(lambda: keeper._thread is None, 30)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_process_keeps_nothing_of_its_parents(monkeypatch):
    app, keeper = own_keeper()
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
    app, keeper = own_keeper()
    ticks = []

    def tick():
        ticks.append(1)
        if len(ticks) == 1:
            raise RuntimeError("a bug")

    keeper.tick = tick
    hold = leased_claim(app, 0.03, time.monotonic())
    keeper.watch(hold)
    assert until(lambda: len(ticks) >= 2, 5)
    keeper.unwatch(hold)
    assert "The keeper failed, and continues." in caplog.text


def test_a_short_lease_wakes_the_keeper_out_of_a_long_sleep():
    app, keeper = own_keeper(store=Renewing())
    keeper.watch(long := leased_claim(app, 20, time.monotonic()))
    time.sleep(0.1)
    keeper.watch(short := leased_claim(app, 0.6, time.monotonic()))
    assert until(lambda: short.was_renewed, 2)
    assert not long.was_renewed
    for hold in (long, short):
        keeper.unwatch(hold)


def test_what_the_garbage_collector_defers_waits_for_no_lock():
    (_, keeper), done = own_keeper(), []

    def collected_inside():
        with keeper._changed:
            keeper.defer(lambda: done.append(1))

    thread = threading.Thread(target=collected_inside, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive(), "deadlock"
    keeper.tick()
    assert done == [1]


def test_a_keeper_that_could_not_start_is_alive_after_the_next_work(monkeypatch, caplog):
    app, keeper = own_keeper(store=Renewing())

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


def test_an_outage_longer_than_its_idle_time_does_not_end_it(monkeypatch):
    monkeypatch.setattr("flask_idempotence.engine.keeper.IDLE_TIMEOUT", 0.2)
    monkeypatch.setattr("flask_idempotence.engine.keeper.RETRY_EVERY", 0.4)
    app, outcomes = make_app(), []
    keeper, back_at = app.extensions["idempotence"].engine.keeper, time.monotonic() + 1

    def call():
        if time.monotonic() < back_at:
            raise StoreError("away")
        return Outcome.OK

    keeper._pace = 0.1
    claim, matters_until = Claim(app, LockGuard(), "view"), time.monotonic() + 60
    keeper.retry(PendingSettlement(claim, "release", call, matters_until, outcomes.append))
    assert until(lambda: outcomes == [Outcome.OK])


def test_a_settlement_never_overtakes_a_renewal_that_is_under_way(monkeypatch):
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
def test_an_error_of_our_own_in_a_settlement_changes_no_answer(operation, monkeypatch, caplog):
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
