"""What the log says of a store that does not answer: enough to notice, too little to drown in."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.apps import make_app, no_answer

from flask_idempotence import MemoryStore, StoreError, StoreUnavailable, no_repeat_submit
from flask_idempotence.config.settings import Config
from flask_idempotence.engine.guard import Claim
from flask_idempotence.engine.store_calls import LOG_EVERY, StoreCalls
from flask_idempotence.guards.lock import LockGuard
from flask_idempotence.testing import FakeClock, record_signals


class Outage:
    """A policy whose every operation fails, on a clock of the test's."""

    def __init__(self, caplog):
        self.clock = FakeClock()
        self.app = make_app()
        self.policy = StoreCalls(Config(), self.clock)
        self._caplog = caplog

    def fail(self, times=1, operation="renew", text="away"):
        def away():
            raise StoreError(text)

        for _ in range(times):
            assert self.call(operation, away, after_view=True) is None

    def answer(self, operation="renew"):
        assert self.call(operation, int, after_view=True) == 0

    def call(self, operation, act, **how):
        return self.policy.call(Claim(self.app, LockGuard(), "pay"), operation, act, **how)

    def lines(self):
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def outage(caplog):
    return Outage(caplog)


def begins(cause="operation=claim StoreError", more=""):
    return (
        "Flask-Idempotence: the store does not answer; guarded requests get 503 until it does. "
        f"Run 'flask idempotence doctor'. ({cause}){more}"
    )


def ends(seconds, refused=0, unguarded=0, *, last=None):
    last = seconds if last is None else last
    return (
        f"Flask-Idempotence: the store answers again, {seconds:.1f} seconds after its first "
        f"failure and {last:.1f} after its last; requests refused: {refused}, "
        f"run unguarded: {unguarded}."
    )


def test_the_first_failure_is_told_at_once_by_its_class_and_without_an_address(outage):
    outage.fail(text="ConnectionError: Error 111 connecting to 10.1.2.3:6379.", operation="claim")
    assert outage.lines() == [begins("operation=claim ConnectionError")]
    outage.clock.advance(LOG_EVERY)
    outage.fail(text="No answer of 10.1.2.3:6379.", operation="claim")
    assert outage.lines()[1:] == [begins()]


def test_then_there_is_a_line_every_few_seconds_that_says_how_many_there_were(outage):
    with record_signals(outage.app) as signals:
        outage.fail(100)
    assert signals.count("store_failed") == 100
    assert len(outage.lines()) == 1
    outage.clock.advance(LOG_EVERY - 0.01)
    outage.fail(20)
    assert len(outage.lines()) == 1
    outage.clock.advance(0.01)
    outage.fail(100)
    first, second = outage.lines()
    assert "more" not in first
    assert second == begins(
        "operation=renew StoreError", " 119 more times since the last such line."
    )


def test_its_end_is_told_once_with_its_length(outage):
    outage.fail()
    outage.clock.advance(2.5)
    outage.answer("begin")  # a session's, which may have sent nothing
    assert len(outage.lines()) == 1
    outage.answer()
    outage.answer()
    assert outage.lines()[1:] == [ends(2.5)]


def test_a_new_outage_does_not_count_the_lines_of_the_last_one(outage):
    outage.fail(10)
    outage.answer()
    outage.clock.advance(LOG_EVERY)
    outage.fail()
    line = begins("operation=renew StoreError")
    assert outage.lines() == [line, ends(0), line]


def test_a_store_that_fails_now_and_then_has_two_lines_every_few_seconds(outage):
    for _ in range(100):
        outage.fail()
        outage.answer()
    assert outage.lines() == [begins("operation=renew StoreError"), ends(0)]
    outage.clock.advance(LOG_EVERY)
    outage.answer()  # as after each of the others, which are over
    outage.fail()
    outage.clock.advance(2)
    outage.answer()
    more = " 99 more times since the last such line."
    assert outage.lines()[2:] == [begins("operation=renew StoreError", more), ends(2)]


def test_another_cause_is_told_at_once_and_each_only_once_every_few_seconds(outage):
    causes = ["TimeoutError: no answer", "ProgrammingError: no such table"]
    for _ in range(10):
        for cause in causes:
            outage.fail(text=cause)
    told = [begins(f"operation=renew {cause.partition(':')[0]}") for cause in causes]
    assert outage.lines() == told
    outage.clock.advance(LOG_EVERY)
    outage.fail(text=causes[0])
    assert outage.lines()[2:] == [told[0] + " 18 more times since the last such line."]


@pytest.mark.parametrize(
    ("settings", "consequence", "status", "more", "counted"),
    [
        ({}, "guarded requests get 503", 503, 3, {"refused": 5}),
        ({"ON_STORE_ERROR": "allow"}, "guarded views run unguarded", 200, 7, {"unguarded": 5}),
        ({"OBSERVE": True}, "guards observe nothing", 200, 3, {}),
    ],
)
def test_its_end_says_how_many_requests_were_refused_or_ran_unguarded(
    caplog, settings, consequence, status, more, counted
):
    """Five requests in an outage of 7 seconds, each behind two guards; and one after it."""
    store, clock = MemoryStore(), FakeClock()
    settings = {f"IDEMPOTENCE_{name}": value for name, value in settings.items()}
    app = make_app(store=store, TESTING=False, **settings)
    clock.rule(app)
    view = no_repeat_submit(1, key=lambda: 1)(no_repeat_submit(1, key=lambda: 2)(lambda: "done"))
    app.add_url_rule("/", "view", view, methods=["POST"])
    client, claim = app.test_client(), store.claim

    store.claim = no_answer
    for _ in range(5):
        assert client.post("/").status_code == status
        clock.advance(1.4)
    store.claim = claim
    assert client.post("/").status_code == 200
    lines = [record for record in caplog.records if "Flask-Idempotence: the s" in record.message]
    assert {(line.name, line.levelname) for line in lines} == {("flask_idempotence", "WARNING")}
    first, again, last = (line.message for line in lines)
    begun = begins()
    assert first == begun.replace("guarded requests get 503", consequence)
    assert again == f"{first} {more} more times since the last such line."
    assert last == ends(7, last=1.4, **counted)


def test_threads_in_an_outage_are_each_counted_and_its_end_is_told_once(outage):
    barrier, lines = threading.Barrier(8), outage.lines

    def refuse(_):
        barrier.wait(timeout=10)
        for _ in range(50):
            with pytest.raises(StoreUnavailable):
                outage.call("claim", no_answer)
        barrier.wait(timeout=10)
        for _ in range(50):
            outage.call("claim", int)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(refuse, range(8)))
    assert lines() == [begins(), ends(0, refused=400)]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_process_waits_for_no_line_of_its_parents(outage):
    with outage.policy._lock:  # another thread was about to write
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            outage.fail()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
