"""`once(wait=...)`: a second caller waits, and then is the first or reads the result."""

import time
from datetime import timedelta

import pytest
from helpers.every_store import EVERY_STORE, storage_settings
from helpers.once_operations import OnceApp
from helpers.servers.processes import all_at_once

from flask_idempotence.testing import record_signals

RIVAL = b"r" * 16


def wait_for_a_rival(once_app, looks, **options):
    """Meet the claim of another, which is released after so many looks; return the waits."""
    key, waits = once_app.key_of(), []
    once_app.store.remove(key)
    once_app.store.claim(key, RIVAL, bytes(16), 20, 0)

    def sleep(seconds):
        waits.append(seconds)
        once_app.clock.advance(seconds)
        if len(waits) == looks:
            once_app.store.release(key, RIVAL)

    once_app.engine.sleep = sleep
    return waits, once_app.word(**options)


def test_who_waits_is_the_first_where_that_one_has_failed():
    waits, word = wait_for_a_rival(OnceApp(), 4, wait=60)
    assert (len(waits), word) == (4, "first")


def test_who_waits_is_the_first_where_that_one_was_killed():
    waits, word = wait_for_a_rival(OnceApp(), 1000, wait=timedelta(minutes=1))
    assert (20 <= sum(waits) <= 21.1, word) == (True, "first")


@pytest.mark.parametrize("options", [{}, {"wait": 0}, {"wait": None}, {"wait": 0.3}, {"wait": 10}])
def test_whose_time_is_over_is_told_that_it_runs(options):
    once_app = OnceApp()
    with record_signals(once_app.app) as told:
        waits, word = wait_for_a_rival(once_app, 1000, **options)
    assert (sum(waits), word) == (pytest.approx(options.get("wait") or 0), "running")
    assert told.names[-1] == "rejected"


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
