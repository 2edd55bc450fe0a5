"""The end of a process: what is pending is written if it can be, and nothing hangs."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.servers.processes import Gunicorn, environment, until

from flask_idempotence.engine.keeper import EXIT_TIMEOUT
from flask_idempotence.stores import open_store

pytestmark = pytest.mark.lifecycle

APP = """
import atexit, os, sys, threading, time
# The last to be registered is the first to be called.
atexit.register(lambda: say(time.monotonic() - began))
import flask_idempotence.engine.keeper
from flask_idempotence import idempotent
from helpers.applications.plain import app

flask_idempotence.engine.keeper.RETRY_EVERY = 60  # nothing is settled by a retry in between

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


class Process(subprocess.Popen):
    """A script that says where it is and waits for a line before it goes on."""

    def __init__(self, script, store, lease=10, **variables):
        env = environment(store, lease=lease, PYTHONWARNINGS="error", **variables)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        super().__init__([sys.executable, "-c", APP + script], text=True, env=env, **pipes)

    def __exit__(self, *details):
        self.kill()
        super().__exit__(*details)

    def says(self, word):
        assert self.stdout.readline().strip() == word

    def go_on(self):
        self.stdin.write("\n")
        self.stdin.flush()

    def runs_until_pending(self, proxy):
        self.says("running")
        proxy.refuse()
        self.go_on()
        self.says("false")  # Idempotent-Stored

    def ends(self):
        """Return what it complains about when it ends, and the seconds that it was held up."""
        said, complaints = self.communicate("\n", timeout=60)
        assert self.returncode == 0
        return complaints, float(said.split()[-1])


@pytest.fixture
def store(redis_url):
    return open_store(redis_url, {})


def held(store):
    entries = store.peek_all([*store.scan("")])
    return next((entry.kind for entry in entries if entry is not None), None)


def test_what_is_pending_is_written_at_the_end(proxy, store):
    with Process(PENDING, proxy.url) as process:
        process.runs_until_pending(proxy)
        proxy.accept()
        assert held(store) == "claim"
        complaints, _ = process.ends()
    begin, end = complaints.splitlines()
    assert "the store does not answer" in begin  # when the view ended
    assert "the store answers again" in end
    assert held(store) == "record"


@pytest.mark.parametrize(
    ("silent", "least", "most"), [(False, 0, 1), (True, EXIT_TIMEOUT - 0.5, EXIT_TIMEOUT + 1)]
)
def test_a_store_that_is_silent_delays_the_end_by_two_seconds_at_most(proxy, silent, least, most):
    with Process(PENDING, f"{proxy.url}?deadline=10") as process:
        process.runs_until_pending(proxy)
        if silent:
            proxy.black_hole = True
            proxy.accept()
        complaints, took = process.ends()
    assert least < took < most
    assert silent or "Not settled when the process ended: 1 claims." in complaints
    assert "Traceback" not in complaints


def test_a_thread_that_the_process_waits_for_keeps_its_lease_and_completes(redis_url, store):
    with Process(IN_A_THREAD, redis_url, SLEEP="4", lease=1.5) as process:
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
    redis_url, store
):
    with Process(IN_A_THREAD, redis_url, SLEEP="60", lease=0.6, DAEMON="1") as process:
        process.says("running")
        time.sleep(0.5)  # the keeper has renewed
        complaints, took = process.ends()
    assert complaints == ""
    assert took < 1
    assert until(lambda: held(store) is None)


SERVED = """
@app.post("/gated")
@idempotent
def gated():
    while not os.path.exists(os.environ["GATE"]):
        time.sleep(0.02)
    return "done"
"""


def writes_what_is_pending(tmp_path, proxy, store, worker_class="gthread"):
    (tmp_path / "exiting.py").write_text(APP + SERVED)
    gate = tmp_path / "gate"
    env = environment(proxy.url, lease=10, GATE=gate)
    app = {"cwd": tmp_path, "env": env, "worker_class": worker_class}
    with Gunicorn("exiting:app", workers=1, **app) as server, ThreadPoolExecutor() as pool:
        asked = pool.submit(server.ask, "/gated", "POST", {"Idempotency-Key": "k"})
        assert until(lambda: held(store) == "claim", 10)
        proxy.refuse()
        gate.touch()
        assert asked.result(20).headers["Idempotent-Stored"] == "false"
        proxy.accept()
        assert held(store) == "claim"
        server._process.terminate()
        server._process.wait(20)
        assert held(store) == "record"
        assert "Traceback" not in server.log


def test_a_worker_writes_what_is_pending(tmp_path, proxy, store):
    writes_what_is_pending(tmp_path, proxy, store)
