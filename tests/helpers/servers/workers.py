"""Guarded views on two workers and one Redis, whose runs are counted outside the library."""

import contextlib
import http.client
import json
import os
import re
import threading
import time

from helpers.servers.processes import Gunicorn, until

APP = """
import os, time
import redis
from flask import Flask, request
from flask_idempotence import Idempotence, idempotent, lease_lost, no_repeat_submit

app = Flask("workers")
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

for path, guard in {
    "/pay": idempotent(), "/patient": idempotent(wait=10),
    "/once": idempotent(guarantee="at-most-once"),
    "/lock": no_repeat_submit(20),
}.items():
    app.add_url_rule(path, path, guard(view), methods=["POST"])
"""

REFUSED = ("key-in-progress", "repeat-submit")


class Service:
    def __init__(self, directory, redis_server, *, lease, **options):
        self.lease = lease
        (directory / "workers.py").write_text(APP)
        self.effects = redis_server.client(decode_responses=True, db=3)
        self.store = redis_server.client(decode_responses=True, db=4)
        database = redis_server.url.removesuffix("/0")
        environment = {"STORE": f"{database}/4", "EFFECTS": f"{database}/3", "LEASE": str(lease)}
        options = {"threads": 64, **options}
        self.server = Gunicorn("workers:app", workers=2, env=environment, cwd=directory, **options)

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
        while (answer := self.post()).status == 409 and answer.slug in REFUSED:
            time.sleep(0.02)
            assert time.monotonic() < ends + 5, "the claim outlives its lease"
        return answer, time.monotonic() - ends
