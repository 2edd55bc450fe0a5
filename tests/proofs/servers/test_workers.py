"""Guards on several processes and one Redis, which only says yes or no."""

import contextlib
import os
import signal
import time

import pytest
from helpers.servers.processes import until
from helpers.servers.workers import Operation, Service

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def mortal(redis_server):
    with Service(redis_server, lease=1) as service:
        yield service


@pytest.fixture
def brisk(mortal):
    assert until(lambda: len(mortal.workers()) == 2, 20)
    return mortal


DEATHS = pytest.mark.parametrize("death", ["kill -9", "SystemExit"])


def died(service, path, death):
    plan = "exit" if death == "SystemExit" else "60"
    operation = Operation(service, death + path, path, plans=[plan])
    thread, answers = operation.begin()
    if death == "kill -9":
        time.sleep(0.5)  # the keeper has renewed
        os.kill(operation.worker(), signal.SIGKILL)
    thread.join()
    assert answers[0].status in {None, 500}
    return operation


@DEATHS
@pytest.mark.parametrize("path", ["/key", "/lock"])
def test_what_died_runs_again_after_its_lease_and_not_before(brisk, path, death):
    operation = died(brisk, path, death)
    again, late = operation.watch_lease_end()
    assert (again.status, again.run, operation.runs) == (201, 2, 2)
    assert late > -0.05
    if path == "/lock":
        assert operation.post().slug == "repeat-submit"
    else:
        assert operation.post().run == 2
        assert operation.post(amount=2).slug == "key-reused"


@DEATHS
def test_what_died_is_unknown_after_its_lease_where_it_may_run_once_at_most(brisk, death):
    operation = died(brisk, "/once", death)
    unknown, late = operation.watch_lease_end()
    assert (unknown.status, unknown.slug) == (409, "outcome-unknown")
    assert late > -0.05
    assert [operation.post().slug for _ in range(3)] == ["outcome-unknown"] * 3
    assert operation.post(amount=2).slug == "key-reused"
    assert operation.runs == 1


def test_the_outcome_of_a_worker_that_timed_out_is_unknown(redis_server):
    options = {"worker_class": "sync", "threads": 1, "extra": ("--timeout=1", "--preload")}
    with Service(redis_server, lease=1, **options) as service:
        operation = Operation(service, "timed out", "/once", plans=["60"])
        thread, answers = operation.begin()
        while thread.is_alive():
            assert operation.post().slug == "key-in-progress"
            time.sleep(0.1)
        assert answers[0].status in {None, 500}
        unknown, late = operation.watch_lease_end()
        assert (unknown.slug, late > -0.05) == ("outcome-unknown", True)
        assert operation.post(amount=2).slug == "key-reused"
        assert operation.runs == 1
    assert "A view was killed" in service.log


@contextlib.contextmanager
def frozen(worker):
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


@pytest.mark.parametrize("path", ["/key", "/lock"])
def test_a_process_that_was_frozen_past_its_lease_changes_nothing_of_its_successors(brisk, path):
    lost = brisk.effects.llen("lost")
    operation = Operation(brisk, f"frozen {path}", path, plans=["0.5", "0"])
    thread, answers = operation.begin()
    with frozen(operation.worker()):
        again, late = operation.watch_lease_end()
        assert (again.status, again.run, late > -0.05) == (201, 2, True)
    thread.join()
    assert (answers[0].status, answers[0].run) == (201, 1)  # its client still gets its answer
    repeat = operation.post()
    if path == "/lock":
        assert repeat.slug == "repeat-submit"
    else:
        assert (repeat.run, repeat.replayed) == (2, True)
    assert operation.runs == 2
    assert brisk.effects.llen("lost") == lost + 1
    assert "A lease was lost" in brisk.log


def test_a_process_that_was_frozen_past_its_lease_tells_its_outcome_when_it_wakes(brisk):
    operation = Operation(brisk, "frozen once", "/once", plans=["0.5"])
    thread, answers = operation.begin()
    with frozen(operation.worker()):
        unknown, _ = operation.watch_lease_end()
        assert unknown.slug == "outcome-unknown"
    thread.join()
    assert (answers[0].run, operation.post().run, operation.runs) == (1, 1, 1)
