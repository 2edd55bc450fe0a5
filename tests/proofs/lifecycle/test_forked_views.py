"""A view that forks: what it holds stays the parent's, whatever becomes of the child."""

import sys
import time

import pytest
from helpers.servers.processes import environment, run_to_end, until

from flask_idempotence.stores import open_store

pytestmark = pytest.mark.lifecycle

APP = """
import os, signal, sys, threading, time, warnings
from flask import Response
from flask_idempotence import (
    LeaseLost, current_guard, idempotent, no_repeat_submit, one_time_token,
)
from helpers.applications.plain import app

warnings.filterwarnings("ignore", "This process", DeprecationWarning)
store = app.extensions["idempotence"].engine.store
parent = os.getpid()

def kinds():
    return sorted(store.peek(key).kind for key in store.scan(""))

def fork(child):
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)  # a deadlock is a failure
        return child()
    return os.waitpid(pid, 0)[1]

@app.post("/other")
@no_repeat_submit(0.6)
def other():
    time.sleep(0.9)  # longer than the first lease: the child's own keeper has renewed
    return {}
"""

WAYS_OUT = """
def fail():
    raise ValueError("the child fails")

def make_sure():
    try:
        current_guard.ensure_held()
    except LeaseLost:
        os._exit(0)
    os._exit(1)

CHILD = {
    "returning": lambda: ("child", 200),
    "failing": lambda: ("child", 422),
    "raising": fail,
    "streaming": lambda: Response(iter(["child"])),
    "sys.exit": lambda: sys.exit(0),
    "os._exit": lambda: os._exit(0),
    "ensure_held": make_sure,
}

def view(way):
    status = fork(CHILD[way])
    if os.getpid() != parent:
        return status  # the child's way out
    assert status == 0, status
    assert kinds() == during, kinds()
    return "parent"

guards = {
    "lock": (no_repeat_submit(20), ["claim"], ["claim"]),
    "key": (idempotent(), ["claim"], ["record"]),
    "token": (one_time_token(restore_on_failure=True), [], []),
}
guard, during, after = guards[sys.argv[1]]
app.add_url_rule("/<way>", "view", guard(view), methods=["POST"])
client = app.test_client()
for way in CHILD:
    if way == "ensure_held" and sys.argv[1] == "token":
        continue  # there is no lease to be sure of
    headers = {"Idempotency-Key": way}
    if sys.argv[1] == "token":
        headers["Idempotence-Token"] = client.get("/token").json["token"]
    answer = client.post(f"/{way}", headers=headers, buffered=True)
    if os.getpid() != parent:
        sys.exit(0)  # through the child's own teardown and the end of its interpreter
    assert (answer.status_code, answer.text) == (200, "parent"), (way, answer.text)
    assert kinds() == after, (way, kinds())
    store.clear("")
"""

OUTLIVED = """
@app.post("/")
@no_repeat_submit(0.6)
def view():
    def live_on():
        os.close(1)
        time.sleep(4)
        os._exit(0)

    time.sleep(0.5)  # the keeper is at work
    if os.fork() == 0:
        live_on()
    os.kill(parent, signal.SIGKILL)

app.test_client().post("/")
"""

MANY = """
@app.post("/")
@no_repeat_submit(20)
def view():
    def child():
        answer = app.test_client().post("/other", json={"who": os.getpid()})
        os._exit(0 if answer.status_code == 200 else 1)

    deadline = time.monotonic() + 8
    for _ in range(4):
        status = fork(child) if time.monotonic() < deadline else 0
        assert status == 0, status
    return "done"

def busy():  # threads of the parent that hold whatever locks there are, again and again
    with app.test_request_context():
        for number in range(10**9):
            app.test_client().post("/quick", json={"n": number})

@app.post("/quick")
@no_repeat_submit(0.5)
def quick():
    return {}

for _ in range(3):
    threading.Thread(target=busy, daemon=True).start()
assert app.test_client().post("/").status_code == 200
"""


def run(script, store, *arguments, lease=0.6):
    command = [sys.executable, "-c", APP + script, *arguments]
    return run_to_end(command, env=environment(store, lease=lease))


@pytest.mark.parametrize("guard", ["lock", "key", "token"])
def test_no_way_out_of_the_child_settles_for_the_parent(redis_url, guard):
    done = run(WAYS_OUT, redis_url, guard, lease=60)  # longer than a busy machine stalls
    assert done.returncode == 0, done.stderr
    assert "lease was lost" not in done.stderr


def test_a_child_that_outlives_its_parent_renews_nothing(redis_url):
    assert run(OUTLIVED, redis_url).returncode == -9
    store = open_store(redis_url, {})
    began = time.monotonic()
    assert until(lambda: not list(store.scan("")), 2)
    assert time.monotonic() < began + 2


@pytest.mark.timed
def test_children_of_a_busy_process_have_guards_and_a_keeper_of_their_own(redis_url):
    done = run(MANY, redis_url)
    assert done.returncode == 0, done.stderr
