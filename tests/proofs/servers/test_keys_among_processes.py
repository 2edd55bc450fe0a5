"""Key mode on several processes and one Redis: runs are counted outside the library."""

import contextlib
import http.client
import json
import os
import re
import signal
import threading
import time

import pytest
from helpers.servers.processes import Gunicorn, all_at_once, until

pytestmark = [pytest.mark.gunicorn, pytest.mark.servers]

APP = """
import os, time
import redis
from flask import Flask, request
from flask_idempotence import Idempotence, idempotent, lease_lost

app = Flask("keys")
app.config.update(
    SECRET_KEY="a secret for the tests",
    IDEMPOTENCE_STORAGE_URI=os.environ["STORE"],
    IDEMPOTENCE_LEASE=float(os.environ["LEASE"]),
)
Idempotence(app)
effects = redis.Redis.from_url(os.environ["EFFECTS"], decode_responses=True)
lease_lost.connect(lambda app, during, **told: effects.rpush("lost", during), app, weak=False)

@app.get("/")
def index():
    return {"pid": os.getpid()}

def view():
    name = request.json["name"]
    run = effects.incr(f"runs of {name}")
    effects.set(f"pid of {name} {run}", os.getpid())
    plan = effects.lindex(f"plans of {name}", run - 1) or "0"
    if plan == "exit":
        raise SystemExit("told to")
    if plan == "gate":
        gives_up = time.monotonic() + 60
        while not effects.exists(f"gate of {name}") and time.monotonic() < gives_up:
            time.sleep(0.01)
    else:
        time.sleep(float(plan))
    return {"run": run, "pid": os.getpid()}, 201, {"X-Run": str(run)}

for path, options in [
    ("/pay", {}), ("/patient", {"wait": 10}), ("/once", {"guarantee": "at-most-once"}),
]:
    app.add_url_rule(path, path, idempotent(**options)(view), methods=["POST"])
"""

PATHS = {"at-least-once": "/pay", "at-most-once": "/once"}


class Service:
    def __init__(self, directory, redis_server, *, lease, **options):
        self.lease = lease
        (directory / "keys.py").write_text(APP)
        self.effects = redis_server.client(decode_responses=True, db=3)
        self.store = redis_server.client(decode_responses=True, db=4)
        database = redis_server.url.removesuffix("/0")
        environment = {"STORE": f"{database}/4", "EFFECTS": f"{database}/3", "LEASE": str(lease)}
        options = {"threads": 64, **options}
        self.server = Gunicorn("keys:app", workers=2, env=environment, cwd=directory, **options)

    def __enter__(self):
        self.effects.flushdb()
        self.store.flushdb()
        self.server.__enter__()
        return self

    def __exit__(self, *details):
        self.server.__exit__(*details)

    def has_all_workers(self):
        begun = re.findall(r"worker ready: (\d+)", self.server.log)
        return sum(is_alive(int(pid)) for pid in begun) == 2


def is_alive(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


class Answer:
    def __init__(self, status=None, headers=None, body=""):
        self.status, self.body = status, body
        self.headers = http.client.HTTPMessage() if headers is None else headers

    @property
    def slug(self):
        """The last part of the problem's type; the whole answer where it is no problem."""
        told = json.loads(self.body or "{}")
        return told.get("type", repr(self)).rpartition(":")[2]

    @property
    def run(self):
        """Which run it tells of; the whole answer where it tells of none."""
        return json.loads(self.body or "{}").get("run", repr(self))

    def __repr__(self):
        return f"<{self.status} {self.body!r}>"


class Operation:
    """One operation under one key, whose view follows a plan for each of its runs."""

    def __init__(self, service, name, path="/pay", plans=("0",)):
        self.service = service
        self.name = name
        self.path = path
        self.effects = service.effects
        self.effects.rpush(f"plans of {name}", *plans)
        self._keys_of_others = self._keys()

    def _keys(self):
        return set(self.service.store.scan_iter(f"*:{self.path}:*"))

    def post(self, **body):
        headers = {"Content-Type": "application/json", "Idempotency-Key": self.name}
        sent = json.dumps({"name": self.name, **body})
        with contextlib.suppress(http.client.HTTPException, OSError):  # the worker died
            answer = self.service.server.ask(self.path, "POST", headers, sent)
            return Answer(answer.status, answer.headers, answer.text)
        return Answer()

    def begin(self):
        """Post in a thread, wait until the view runs, and return what will hold the answer."""
        answers, run = [], self.runs + 1
        thread = threading.Thread(target=lambda: answers.append(self.post()))
        thread.start()
        assert until(lambda: self.worker(run), 10), "the view did not start"
        return thread, answers

    def open_gate(self):
        self.effects.set(f"gate of {self.name}", 1)

    @property
    def runs(self):
        return int(self.effects.get(f"runs of {self.name}") or 0)

    def worker(self, run=1):
        return int(self.effects.get(f"pid of {self.name} {run}") or 0) or None

    def lease_left(self):
        (key,) = self._keys() - self._keys_of_others
        keep = int(self.service.store.getrange(key, 33, -1))
        return (self.service.store.pttl(key) - keep) / 1000

    def watch_lease_end(self):
        """Post until the claim of a dead process has ended; return how long after it that was."""
        left = self.lease_left()
        assert left <= self.service.lease
        ends = time.monotonic() + left
        while (answer := self.post()).status == 409 and answer.slug == "key-in-progress":
            time.sleep(0.02)
            assert time.monotonic() < ends + 5, "the claim outlives its lease"
        return answer, time.monotonic() - ends


@pytest.fixture(scope="module")
def calm(tmp_path_factory, redis_server):
    with Service(tmp_path_factory.mktemp("calm"), redis_server, lease=30) as service:
        yield service


@pytest.fixture(scope="module")
def mortal(tmp_path_factory, redis_server):
    with Service(tmp_path_factory.mktemp("brisk"), redis_server, lease=1) as service:
        yield service


@pytest.fixture
def brisk(mortal):
    assert until(mortal.has_all_workers, 20)
    return mortal


def test_of_a_hundred_duplicates_that_wait_one_runs_and_all_get_its_answer(calm):
    operation = Operation(calm, "a hundred", "/patient", plans=["0.5"])
    answers = all_at_once([operation.post] * 100)
    assert operation.runs == 1
    assert {(answer.status, answer.body, answer.headers["X-Run"]) for answer in answers} == {
        (201, answers[0].body, "1")
    }
    replays = [answer for answer in answers if answer.headers["Idempotent-Replayed"] == "true"]
    assert len(replays) == 99


def test_of_a_hundred_duplicates_that_do_not_wait_one_runs_and_the_others_are_told_so(calm):
    operation = Operation(calm, "not patient", plans=["gate"])
    rejections = []

    def post():
        answer = operation.post()
        if answer.status == 409:
            rejections.append(answer)
        if len(rejections) == 99:
            operation.open_gate()
        return answer

    answers = all_at_once([post] * 100)
    assert operation.runs == 1
    assert [answer.status for answer in answers].count(201) == 1
    assert len(rejections) == 99
    assert {answer.slug for answer in rejections} == {"key-in-progress"}
    assert {answer.headers["Retry-After"] for answer in rejections} == {"1"}
    replay = operation.post()
    assert (replay.status, replay.run, operation.runs) == (201, 1, 1)


def test_the_processes_share_what_runs_and_what_is_done(calm):
    operation = Operation(calm, "shared", plans=["gate"])
    thread, _ = operation.begin()
    assert {operation.post().slug for _ in range(20)} == {"key-in-progress"}
    assert {operation.post(amount=2).slug for _ in range(20)} == {"key-reused"}
    operation.open_gate()
    thread.join()
    assert {operation.post().run for _ in range(20)} == {1}
    assert {operation.post(amount=2).slug for _ in range(20)} == {"key-reused"}
    assert operation.runs == 1


def test_a_view_that_runs_ten_times_its_lease_is_protected_throughout(tmp_path, redis_server):
    with Service(tmp_path, redis_server, lease=0.5) as service:
        operations = [
            Operation(service, guarantee, path, plans=["5"]) for guarantee, path in PATHS.items()
        ]
        begun = [operation.begin() for operation in operations]
        rejected = 0
        while all(thread.is_alive() for thread, _ in begun):
            for operation in operations:
                answer = operation.post()
                rejected += answer.status == 409 and answer.slug == "key-in-progress"
            time.sleep(0.1)
        for thread, _ in begun:
            thread.join()
        assert [answers[0].run for _, answers in begun] == [1, 1]
        assert [operation.post().run for operation in operations] == [1, 1]
        assert [operation.runs for operation in operations] == [1, 1]
        assert rejected >= 20
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
def test_what_died_runs_again_after_its_lease_and_not_before(brisk, death):
    operation = died(brisk, "/pay", death)
    again, late = operation.watch_lease_end()
    assert (again.status, again.run, operation.runs) == (201, 2, 2)
    assert late > -0.05
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


def test_the_outcome_of_a_worker_that_timed_out_is_unknown(tmp_path, redis_server):
    options = {"worker_class": "sync", "threads": 1, "extra": ("--timeout=1", "--preload")}
    with Service(tmp_path, redis_server, lease=1, **options) as service:
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


def test_a_process_that_was_frozen_past_its_lease_changes_nothing_of_its_successors(brisk):
    lost = brisk.effects.llen("lost")
    operation = Operation(brisk, "frozen", plans=["0.5", "0"])
    thread, answers = operation.begin()
    with frozen(operation.worker()):
        again, late = operation.watch_lease_end()
        assert (again.status, again.run, late > -0.05) == (201, 2, True)
    thread.join()
    assert (answers[0].status, answers[0].run) == (201, 1)  # its client still gets its answer
    replay = operation.post()
    assert (replay.run, replay.headers["Idempotent-Replayed"]) == (2, "true")
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
