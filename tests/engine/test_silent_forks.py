"""A fork in C, which runs no hook of Python: as that of uWSGI's master."""

import subprocess
import sys

import pytest

APP = """
import ctypes, os, signal, sys, threading, time
from flask import Flask
from flask_idempotence import Idempotence, no_repeat_submit

app = Flask("forks")
app.config.update(
    SECRET_KEY="a secret for the tests",
    IDEMPOTENCE_STORAGE_URI=sys.argv[1],
    IDEMPOTENCE_LEASE=0.6,
)
idempotence = Idempotence(app)
engine = app.extensions["idempotence"].engine
parent = os.getpid()

@app.post("/")
@no_repeat_submit(0.6)
def view():
    if os.getpid() != parent:
        time.sleep(1.2)
        print("lease", sum(claim.was_renewed for claim in engine.keeper._held))
    return {}

with app.app_context(), idempotence.once("boot", "1"):
    pass
[connection] = engine.store._deployment._nodes()[0]._idle
socket = connection.over
lock = engine.keeper._lock
threading.Thread(target=lambda: lock.acquire() and time.sleep(60), daemon=True).start()
while not lock.locked():
    time.sleep(0.01)
pid = ctypes.PyDLL(None).fork()
if pid == 0:
    signal.alarm(10)  # a deadlock is a failure
    answer = app.test_client().post("/", json={})
    print("status", answer.status_code)
    [connection] = engine.store._deployment._nodes()[0]._idle
    print("shared", connection.over is socket)
    sys.stdout.flush()
    os._exit(0)
status = os.waitpid(pid, 0)[1]
print("exit", status)
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture
def lines(redis_url):
    done = subprocess.run(
        [sys.executable, "-c", APP, redis_url], check=True, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_child_that_was_forked_in_c_has_a_keeper_locks_and_connections_of_its_own(lines):
    assert lines == ["lease 1", "status 200", "shared False", "exit 0"]
