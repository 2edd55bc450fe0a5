"""What the log says of a store that does not answer: enough to notice, too little to drown in."""

import os
import signal

import pytest
from helpers.apps import make_app

from flask_idempotence import StoreError
from flask_idempotence.config.settings import Config
from flask_idempotence.engine.claim import Attempt
from flask_idempotence.engine.store_calls import LOG_EVERY, FailurePolicy
from flask_idempotence.testing import FakeClock, record_signals


class Outage:
    """A policy whose every operation fails, on a clock of the test's."""

    def __init__(self, caplog):
        self.clock = FakeClock()
        self.app = make_app()
        self.policy = FailurePolicy(Config(), self.clock)
        self._caplog = caplog

    def fail(self, times=1, operation="renew"):
        def away():
            raise StoreError("away")

        for _ in range(times):
            assert (
                self.policy.after_view(Attempt(self.app, "lock", "pay"), operation, away) is None
            )

    def lines(self):
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def outage(caplog):
    return Outage(caplog)


def test_the_first_failure_is_told_at_once_and_whole(outage):
    outage.fail(operation="claim")
    assert outage.lines() == [
        "The store did not answer: operation=claim mode=lock endpoint=pay key=None (away)"
    ]


def test_then_there_is_a_line_every_few_seconds_that_says_how_many_there_were(outage):
    outage.fail(100)
    assert len(outage.lines()) == 1
    outage.clock.advance(LOG_EVERY - 0.01)
    outage.fail(20)
    assert len(outage.lines()) == 1
    outage.clock.advance(0.01)
    outage.fail(100)
    first, second = outage.lines()
    assert "more" not in first
    assert second.endswith("(away); 119 more times since the last such line")


def test_one_that_comes_alone_is_told_as_the_first_was(outage):
    for _ in range(3):
        outage.fail()
        outage.clock.advance(LOG_EVERY)
    assert len(set(outage.lines())) == 1
    assert len(outage.lines()) == 3


def test_every_failure_is_a_signal(outage):
    with record_signals(outage.app) as signals:
        outage.fail(100)
    assert signals.count("store_failed") == 100


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_process_waits_for_no_line_of_its_parents(outage):
    with outage.policy._lock:  # another thread was about to write
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            outage.fail()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
