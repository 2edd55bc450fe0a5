"""Guards on several processes and one Redis, which only says yes or no."""

import contextlib
import os
import signal
import time

import pytest
from helpers.servers.processes import all_at_once, until
from helpers.servers.workers import REFUSED, Operation, Service

pytestmark = [pytest.mark.gunicorn, pytest.mark.servers]


@pytest.fixture(scope="module")
def calm(redis_server):
    with Service(redis_server, lease=30) as service:
        yield service


@pytest.fixture(scope="module")
def mortal(redis_server):
    with Service(redis_server, lease=1) as service:
        yield service


@pytest.fixture
def brisk(mortal):
    assert until(lambda: len(mortal.server.workers()) == 2, 20)
    return mortal


def test_of_a_hundred_duplicates_that_wait_one_runs_and_all_get_its_answer(calm):
    operation = Operation(calm, "a hundred", "/patient", plans=["0.5"])
    answers = all_at_once([operation.post] * 100)
    assert operation.runs == 1
    assert {(answer.status, answer.text, answer.headers["X-Run"]) for answer in answers} == {
        (201, answers[0].text, "1")
    }
    replays = [answer for answer in answers if answer.replayed]
    assert len(replays) == 99


def test_of_a_hundred_duplicates_that_do_not_wait_one_runs_and_the_others_are_told_so(calm):
    operation = Operation(calm, "not patient", plans=["gate"])
    rejections = []

    def post():
        answer = operation.post()
        if answer.status == 409:
            rejections.append(answer)
        if len(rejections) == 99:
            assert operation.post(amount=2).slug == "key-reused"
            operation.open_gate()
        return answer

    answers = all_at_once([post] * 100)
    assert operation.runs == 1
    assert [answer.status for answer in answers].count(201) == 1
    assert len(rejections) == 99
    assert {answer.slug for answer in rejections} == {"key-in-progress"}
    assert {answer.headers["Retry-After"] for answer in rejections} == {"1"}
    assert {operation.post().run for _ in range(20)} == {1}  # from either process
    assert {operation.post(amount=2).slug for _ in range(20)} == {"key-reused"}
    assert operation.runs == 1


@pytest.mark.timed
@pytest.mark.parametrize("extra", [("--preload",), ()], ids=["preloaded", "forked first"])
def test_a_view_that_runs_ten_times_its_lease_is_protected_throughout(redis_server, extra):
    paths = ("/key", "/once", "/lock")
    with Service(redis_server, lease=0.5, extra=extra) as service:
        operations = [Operation(service, path, path, plans=["5"]) for path in paths]
        begun = [operation.begin() for operation in operations]
        rejected = 0
        while all(thread.is_alive() for thread, _ in begun):
            for operation in operations:
                answer = operation.post()
                rejected += answer.status == 409 and answer.slug in REFUSED
            time.sleep(0.1)
        for thread, _ in begun:
            thread.join()
        assert [answers[0].run for _, answers in begun] == [1, 1, 1]
        assert [operation.post().run for operation in operations[:2]] == [1, 1]
        assert operations[2].post().slug == "repeat-submit"
        assert [operation.runs for operation in operations] == [1, 1, 1]
        assert rejected >= 30
        assert service.effects.lrange("lost", 0, -1) == []


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
    assert "A view was killed" in service.server.log


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
    assert "A lease was lost" in brisk.server.log


def test_a_process_that_was_frozen_past_its_lease_tells_its_outcome_when_it_wakes(brisk):
    operation = Operation(brisk, "frozen once", "/once", plans=["0.5"])
    thread, answers = operation.begin()
    with frozen(operation.worker()):
        unknown, _ = operation.watch_lease_end()
        assert unknown.slug == "outcome-unknown"
    thread.join()
    assert (answers[0].run, operation.post().run, operation.runs) == (1, 1, 1)
