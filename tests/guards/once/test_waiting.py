"""`once(wait=...)`: a second caller waits, and then is the first or reads the result."""

import threading
import time
from datetime import timedelta

import pytest
from helpers.every_store import EVERY_STORE, storage_settings
from helpers.once_operations import OnceApp, elsewhere
from helpers.servers.processes import all_at_once

from flask_idempotence import Running
from flask_idempotence.testing import record_signals


class Line:
    """A block of `once` that runs until another caller has slept so many times."""

    def __init__(self, *, looks, error=None):
        self.once_app = OnceApp()
        self.once_app.engine.sleep = self._sleep
        self.looks, self.error, self.sleeps = looks, error, []
        self.is_running, self.may_end = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._first)

    def _first(self):
        app = self.once_app
        try:
            with app.app.app_context(), app.once() as job:
                app.runs += job.first
                self.is_running.set()
                assert self.may_end.wait(10)
                if self.error is not None:
                    raise self.error
                job.result = "of the first"
        except BaseException as error:
            assert error is self.error  # noqa: PT017 - it is the thread's end

    def _sleep(self, seconds):
        self.sleeps.append(seconds)
        self.once_app.clock.advance(seconds)
        if len(self.sleeps) == self.looks:
            self.end()

    def end(self):
        self.may_end.set()
        self.thread.join(10)

    def come(self, **options):
        """Return what comes of another caller, while the first one runs."""
        self.thread.start()
        assert self.is_running.wait(10)
        try:
            return elsewhere(self.once_app.work, result="of the second", **options)
        finally:
            self.end()


def test_who_waits_reads_the_result_of_the_first():
    line = Line(looks=4)
    assert line.come(wait=60) == (False, "of the first")
    assert (len(line.sleeps), line.once_app.runs) == (4, 1)


def test_who_waits_is_the_first_where_that_one_has_failed():
    line = Line(looks=4, error=OSError("the bank is closed"))
    assert line.come(wait=60) == (True, "of the second")
    assert (len(line.sleeps), line.once_app.runs) == (4, 2)


def test_who_waits_is_the_first_where_that_one_was_killed():
    line = Line(looks=1, error=SystemExit())
    assert line.come(wait=timedelta(minutes=1)) == (True, "of the second")
    assert 30 <= sum(line.sleeps) <= 31.1


@pytest.mark.parametrize("wait", [0.3, 2, 10])
def test_whose_time_is_over_is_told_that_it_runs(wait):
    line = Line(looks=1000)
    with record_signals(line.once_app.app) as told, pytest.raises(Running):
        line.come(wait=wait)
    assert sum(line.sleeps) == pytest.approx(wait)
    assert told.names[:2] == ["claimed", "rejected"]
    assert line.once_app.runs == 1


@pytest.mark.parametrize("options", [{}, {"wait": 0}, {"wait": None}])
def test_without_it_nobody_waits(options):
    line = Line(looks=1000)
    with pytest.raises(Running):
        line.come(**options)
    assert line.sleeps == []


def test_what_is_done_is_read_at_once():
    once_app = OnceApp()
    once_app.engine.sleep = None
    assert [once_app.work(result=1), once_app.work(wait=60)] == [(True, 1), (False, 1)]


@pytest.mark.parametrize("kind", EVERY_STORE)
@pytest.mark.parametrize("decorated", [False, True])
def test_of_sixteen_at_once_one_works_and_all_have_its_result(kind, decorated, request):
    once_app = OnceApp(**storage_settings(kind, request))
    once_app.engine.clock, once_app.engine.sleep = time.monotonic, time.sleep
    runs = []

    def work():
        runs.append(1)
        time.sleep(0.2)
        return "done"

    once = once_app.idempotence.once
    decorated_work = once("invoice", key=lambda: 1, wait=60)(work)

    def call():
        with once_app.app.app_context():
            if decorated:
                return decorated_work()
            with once("invoice", 1, wait=60) as job:
                if job.first:
                    job.result = work()
            return job.result

    assert all_at_once([call] * 16) == ["done"] * 16
    assert runs == [1]
