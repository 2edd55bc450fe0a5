"""Several processes on one Redis: counted outside the library, which only says yes or no."""

import contextlib
import http.client
import json
import os
import signal
import threading
import time

import pytest
from helpers.servers.processes import Gunicorn, all_at_once

pytestmark = [pytest.mark.gunicorn, pytest.mark.servers]

APP = """
import os, time
import redis
from flask import Flask, request
from flask_idempotence import Idempotence, no_repeat_submit, one_time_token

app = Flask("processes")
app.config.update(
    SECRET_KEY="a secret for the tests",
    IDEMPOTENCE_STORAGE_URI=os.environ["STORE"],
    IDEMPOTENCE_LEASE=float(os.environ.get("LEASE", "30")),
)
Idempotence(app)
effects = redis.Redis.from_url(os.environ["EFFECTS"])  # counts the side effects

@app.get("/")
def index():
    return {"pid": os.getpid()}

@app.post("/lock")
@no_repeat_submit(interval=float(os.environ.get("INTERVAL", "20")), ignore=("sleep",))
def lock():
    effects.rpush("pids", os.getpid())
    effects.incr("lock")
    time.sleep(float(request.args.get("sleep", "0.05")))
    return {"pid": os.getpid()}

@app.post("/token")
@one_time_token()
def token():
    effects.incr("token")
    return {}
"""


class Service:
    def __init__(self, tmp_path, redis_server, *, extra=(), worker_class="gthread", **environment):
        (tmp_path / "processes.py").write_text(APP)
        self.effects = redis_server.client(decode_responses=True)
        self.effects.flushall()
        database = redis_server.url.removesuffix("/0")
        environment = {"STORE": f"{database}/1", "EFFECTS": f"{database}/0", **environment}
        self.server = Gunicorn(
            "processes:app",
            workers=2,
            threads=32,
            worker_class=worker_class,
            extra=extra,
            env=environment,
            cwd=tmp_path,
        )

    def __enter__(self):
        self.server.__enter__()
        return self

    def __exit__(self, *details):
        self.server.__exit__(*details)

    def post(self, path, body=None, headers=None):
        sent = json.dumps(body if body is not None else {"a": 1})
        headers = {"Content-Type": "application/json", **(headers or {})}
        with contextlib.suppress(http.client.HTTPException, OSError):  # the worker died
            return self.server.ask(path, "POST", headers, sent).status
        return None

    def count(self, name):
        return int(self.effects.get(name) or 0)


def test_of_sixty_four_simultaneous_duplicates_one_runs(tmp_path, redis_server):
    with Service(tmp_path, redis_server) as service:
        codes = all_at_once([lambda: service.post("/lock?sleep=0.5")] * 64)
        assert (codes.count(200), codes.count(409)) == (1, 63)
        assert service.count("lock") == 1


def test_two_hundred_different_requests_at_once_all_run(tmp_path, redis_server):
    with Service(tmp_path, redis_server) as service:
        calls = [
            lambda number=number: service.post("/lock", {"a": number}) for number in range(200)
        ]
        assert all_at_once(calls) == [200] * 200
        assert service.count("lock") == 200


def test_of_sixty_four_requests_with_one_token_one_runs(tmp_path, redis_server):
    with Service(tmp_path, redis_server) as service:
        header = {"Idempotence-Token": service.server.ask("/token").json["token"]}
        codes = all_at_once([lambda: service.post("/token", headers=header)] * 64)
        assert (codes.count(200), codes.count(409)) == (1, 63)
        assert service.count("token") == 1


def _running_worker(service):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if pids := service.effects.lrange("pids", 0, -1):
            return int(pids[-1])
        time.sleep(0.02)
    raise AssertionError("the view did not start")


def test_a_killed_worker_frees_its_claim_when_the_lease_ends_and_not_before(
    tmp_path, redis_server
):
    with Service(tmp_path, redis_server, LEASE="2", INTERVAL="2") as service:
        first = threading.Thread(target=service.post, args=("/lock?sleep=60",))
        first.start()
        time.sleep(1.5)  # the keeper has renewed: a lease of 2 s from then
        os.kill(_running_worker(service), signal.SIGKILL)
        first.join()
        killed = time.monotonic()
        assert service.post("/lock") == 409
        codes = []
        while 200 not in codes and time.monotonic() < killed + 10:
            codes.append(service.post("/lock"))
            time.sleep(0.05)
        freed_after = time.monotonic() - killed
        assert service.count("lock") == 2
    assert 0.3 < freed_after < 3


def test_a_worker_that_was_frozen_past_its_lease_changes_nothing_of_its_successors(
    tmp_path, redis_server
):
    with Service(tmp_path, redis_server, LEASE="1", INTERVAL="1") as service:
        answers = []
        first = threading.Thread(target=lambda: answers.append(service.post("/lock?sleep=1")))
        first.start()
        frozen = _running_worker(service)
        os.kill(frozen, signal.SIGSTOP)
        try:
            time.sleep(2.2)
            second = threading.Thread(
                target=lambda: answers.append(service.post("/lock?sleep=2.5"))
            )
            second.start()
            deadline = time.monotonic() + 10
            while service.count("lock") < 2 and time.monotonic() < deadline:
                time.sleep(0.02)
        finally:
            os.kill(frozen, signal.SIGCONT)
        first.join()
        assert answers == [200]  # its client still gets its answer
        assert service.post("/lock") == 409  # and the second one's claim still stands
        second.join()
        assert service.count("lock") == 2
    assert "lease was lost" in service.server.log


@pytest.mark.parametrize("extra", [("--preload",), ()], ids=["preloaded", "forked first"])
def test_a_worker_keeps_its_leases_however_it_came_about(tmp_path, redis_server, extra):
    with Service(tmp_path, redis_server, extra=extra, INTERVAL="1") as service:
        first = threading.Thread(target=service.post, args=("/lock?sleep=2.5",))
        first.start()
        _running_worker(service)
        time.sleep(1.8)  # the first lease has ended: what answers is a renewed one
        assert service.post("/lock") == 409
        first.join()
        assert service.count("lock") == 1
