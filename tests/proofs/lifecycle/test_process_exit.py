"""The end of a process: what is pending is written if it can be, and nothing hangs."""

import os
import subprocess
import sys
import threading
import time

import pytest
from helpers.servers.faults import Proxy
from helpers.servers.processes import Gunicorn, until

from flask_idempotence.engine.keeper import EXIT_TIMEOUT
from flask_idempotence.stores import open_store

pytestmark = pytest.mark.lifecycle

APP = """
import atexit, os, sys, threading, time
import flask_idempotence.engine.keeper
from flask import Flask
from flask_idempotence import Idempotence, idempotent

flask_idempotence.engine.keeper.RETRY_EVERY = 60  # nothing is settled by a retry in between
app = Flask("exits")
app.config.update(
    SECRET_KEY="a secret for the tests",
    IDEMPOTENCE_STORAGE_URI=os.environ["STORE"],
    IDEMPOTENCE_LEASE=float(os.environ.get("LEASE", "10")),
)
# The last to be registered is the first to be called.
atexit.register(lambda: say(time.monotonic() - began))
Idempotence(app)

@atexit.register
def begin():
    global began
    began = time.monotonic()

def say(word):
    print(word, flush=True)

@app.post("/pay")
@idempotent
def pay():
    say("running")
    sys.stdin.readline()
    return "paid"

@app.post("/slow")
@idempotent
def slow():
    say("running")
    time.sleep(float(os.environ["SLEEP"]))
    return "done"

def send(path):
    answer = app.test_client().post(path, headers={"Idempotency-Key": "k"})
    say(answer.headers.get("Idempotent-Stored", "stored"))
"""

PENDING = """
send("/pay")
sys.stdin.readline()
"""

IN_A_THREAD = """
threading.Thread(target=send, args=["/slow"], daemon="DAEMON" in os.environ).start()
sys.stdin.readline()
"""


class Process:
    """A script that says where it is and waits for a line before it goes on."""

    def __init__(self, script, store, **environment):
        self.process = subprocess.Popen(
            [sys.executable, "-c", APP + script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"STORE": store, "PYTHONWARNINGS": "error", **environment},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def says(self, word):
        assert self.process.stdout.readline().strip() == word

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ends(self):
        """Return what it complains about when it ends, and the seconds that it was held up."""
        said, complaints = self.process.communicate("\n", timeout=60)
        assert self.process.returncode == 0
        return complaints, float(said.split()[-1])


@pytest.fixture
def proxy(redis_server, redis_url):
    with Proxy(redis_server) as proxy:
        yield proxy


@pytest.fixture
def store(redis_url):
    return open_store(redis_url, {})


def held(store):
    entries = store.peek_all([*store.scan("")])
    return next((entry.kind for entry in entries if entry is not None), None)


class TestPendingCompletions:
    def run_until_pending(self, process, proxy):
        process.says("running")
        proxy.refuse()
        process.go_on()
        process.says("false")  # Idempotent-Stored

    def test_what_is_pending_is_written_at_the_end(self, proxy, store):
        with Process(PENDING, proxy.url) as process:
            self.run_until_pending(process, proxy)
            proxy.accept()
            assert held(store) == "claim"
            complaints, _ = process.ends()
        begin, end = complaints.splitlines()
        assert "the store does not answer" in begin  # when the view ended
        assert "the store answers again" in end
        assert held(store) == "record"

    def test_a_store_that_refuses_does_not_delay_the_end(self, proxy):
        with Process(PENDING, proxy.url) as process:
            self.run_until_pending(process, proxy)
            complaints, took = process.ends()
        assert took < 1
        assert "Not settled when the process ended: 1 claims." in complaints
        assert "Traceback" not in complaints

    def test_a_store_that_is_silent_delays_the_end_by_two_seconds_at_most(self, proxy):
        with Process(PENDING, f"{proxy.url}?deadline=10") as process:
            self.run_until_pending(process, proxy)
            proxy.black_hole = True
            proxy.accept()
            complaints, took = process.ends()
        assert EXIT_TIMEOUT - 0.5 < took < EXIT_TIMEOUT + 1
        assert "Traceback" not in complaints


class TestRunningViews:
    def test_a_thread_that_the_process_waits_for_keeps_its_lease_and_completes(
        self, redis_url, store
    ):
        with Process(IN_A_THREAD, redis_url, SLEEP="4", LEASE="1.5") as process:
            process.says("running")
            began = time.monotonic()
            process.go_on()  # the main thread ends
            while time.monotonic() < began + 3:
                assert held(store) == "claim"
                time.sleep(0.05)
            complaints, _ = process.ends()
        assert complaints == ""
        assert held(store) == "record"

    def test_a_daemon_thread_is_cut_off_without_a_word_and_leaves_its_claim_to_the_lease(
        self, redis_url, store
    ):
        with Process(IN_A_THREAD, redis_url, SLEEP="60", LEASE="0.6", DAEMON="1") as process:
            process.says("running")
            time.sleep(0.5)  # the keeper has renewed
            complaints, took = process.ends()
        assert complaints == ""
        assert took < 1
        assert until(lambda: held(store) is None)


SERVED = """
@app.get("/")
def index():
    return {}

@app.post("/gated")
@idempotent
def gated():
    while not os.path.exists(os.environ["GATE"]):
        time.sleep(0.02)
    return "done"
"""


class Worker:
    """The application in one Gunicorn worker, and a request whose view waits for a gate."""

    def __init__(self, tmp_path, store, worker_class="gthread", *, lease="10"):
        (tmp_path / "exiting.py").write_text(APP + SERVED)
        self.gate = tmp_path / "gate"
        self.stored = []
        self.server = Gunicorn(
            "exiting:app",
            workers=1,
            env={"STORE": store, "GATE": str(self.gate), "LEASE": lease},
            cwd=tmp_path,
            worker_class=worker_class,
        )

    def __enter__(self):
        self.server.__enter__()
        self._thread = threading.Thread(target=self._post)
        self._thread.start()
        return self

    def __exit__(self, *details):
        self.answer()
        self.server.__exit__(*details)

    def _post(self):
        answer = self.server.ask("/gated", "POST", {"Idempotency-Key": "k"})
        self.stored.append(answer.headers.get("Idempotent-Stored", "stored"))

    def answer(self):
        self.gate.touch()
        self._thread.join(10)
        return self.stored

    def stop(self):
        started = time.monotonic()
        self.server._process.terminate()
        self.server._process.wait(30)
        return time.monotonic() - started


def writes_what_is_pending(tmp_path, proxy, store, worker_class):
    with Worker(tmp_path, proxy.url, worker_class) as worker:
        assert until(lambda: held(store) == "claim", 10)
        proxy.refuse()
        assert worker.answer() == ["false"]
        proxy.accept()
        assert held(store) == "claim"
        assert worker.stop() < 20
        assert held(store) == "record"
        assert "Traceback" not in worker.server.log


class TestGracefulStop:
    def test_a_worker_writes_what_is_pending(self, tmp_path, proxy, store):
        writes_what_is_pending(tmp_path, proxy, store, "gthread")

    def test_a_view_that_runs_keeps_its_lease_until_it_is_done(self, tmp_path, redis_url, store):
        with Worker(tmp_path, redis_url, lease="1.5") as worker:
            assert until(lambda: held(store) == "claim", 10)
            stopping = threading.Thread(target=worker.stop)
            stopping.start()
            began = time.monotonic()
            while time.monotonic() < began + 3:  # two leases
                assert held(store) == "claim"
                time.sleep(0.05)
            assert worker.answer() == ["stored"]
            stopping.join()
            assert held(store) == "record"
            assert "Traceback" not in worker.server.log
