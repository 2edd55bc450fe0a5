"""Repeats that wait for a first request, for each kind of wait; run as a script.

Its arguments: when gevent patches the process (`before` the package is loaded, or `after` it), or
`frozen` for a clock that stands still and a `sleep` of Python's; and the store's URI.
It prints how many blocks and views ran, and the statuses of the repeats, as JSON.
"""

import json
import sys
import time

when, uri = sys.argv[1:]
if when == "before":
    import gevent.monkey

    gevent.monkey.patch_all()

import threading  # noqa: E402 - after patching, as under a server that patches first
from collections import Counter  # noqa: E402
from concurrent.futures import ThreadPoolExecutor  # noqa: E402
from functools import partial  # noqa: E402

from flask import Flask  # noqa: E402

from flask_idempotence import Idempotence, Running, idempotent, no_repeat_submit  # noqa: E402

REPEATS = 4
WORK = 0.1
WAIT = 20.0

app = Flask("waits")
app.config.update(SECRET_KEY="a secret", TESTING=True, IDEMPOTENCE_STORAGE_URI=uri)
idempotence = Idempotence(app)
runs: Counter = Counter()

if when == "after":
    import gevent.monkey

    gevent.monkey.patch_all()

real_sleep = time.sleep


def work(kind):
    runs[kind] += 1
    time.sleep(WORK)
    return {"kind": kind}, 201


app.add_url_rule("/key", "key", idempotent(wait=WAIT)(partial(work, "key")), methods=["POST"])
lock = no_repeat_submit(0.1, wait=WAIT, key=lambda: "one")
app.add_url_rule("/lock", "lock", lock(partial(work, "lock")), methods=["POST"])


def post(path):
    headers = {"Idempotency-Key": "e3a4d2ba-5a52-4b42-a0b0-6d2d9e8c9a01"}
    return app.test_client().post(path, headers=headers).status_code


def once():
    with app.app_context(), idempotence.once("scope", "id", wait=WAIT) as block:
        if block.first:
            work("once")
            block.result = 1
    return block.result


def named_lock():
    with app.app_context(), idempotence.lock("name", wait=WAIT):
        work("named")
    return 1


def impatient():
    """Wait in vain, with a clock that stands still or not; return whether that ended."""
    try:
        with app.app_context(), idempotence.lock("held", wait=0.3):
            return False
    except Running:
        return True


def all_at_once(call):
    with ThreadPoolExecutor(REPEATS) as pool:
        return [each.result() for each in [pool.submit(call) for _ in range(REPEATS)]]


def frozen():
    """Replace the clock and `sleep` as freezegun does: by functions of Python."""
    now = time.monotonic()
    time.monotonic = lambda: now
    time.sleep = slept


def slept(seconds):
    real_sleep(seconds)


def ended_waits():
    """Have a thread wait for a lock that this one holds."""
    ended = []
    with app.app_context(), idempotence.lock("held"):
        waiter = threading.Thread(target=lambda: ended.append(impatient()))
        waiter.start()
        waiter.join(10)
    return ended


answers = {
    "key": all_at_once(partial(post, "/key")),
    "lock": all_at_once(partial(post, "/lock")),
    "once": all_at_once(once),
    "named": all_at_once(named_lock),
}
if when == "frozen":
    frozen()
sys.stdout.write(json.dumps({"answers": answers, "runs": runs, "ended": ended_waits()}))
