"""Guarded views on two workers and one Redis, whose runs are counted outside the library."""

import contextlib
import http.client
import json
import threading
import time
from urllib.parse import urlencode

from helpers.servers.processes import Gunicorn, environment, until
from helpers.servers.wsgi import APP

REFUSED = ("key-in-progress", "repeat-submit")


class Service(Gunicorn):
    def __init__(self, redis_server, *, lease, **options):
        self.lease = lease
        self.effects = redis_server.client(decode_responses=True, db=3)
        self.store = redis_server.client(decode_responses=True, db=4)
        database = redis_server.url.removesuffix("/0")
        env = environment(f"{database}/4", lease=lease, EFFECTS=f"{database}/3")
        super().__init__(APP, **{"threads": 64, "env": env, **options})

    def __enter__(self):
        self.effects.flushdb()
        self.store.flushdb()
        return super().__enter__()


class NoAnswer:
    """What a client gets from a worker that dies."""

    status = slug = run = None


class Operation:
    """One operation under one key, whose view follows a plan for each of its runs."""

    def __init__(self, service, name, path="/key", plans=("0",)):
        self.service, self.name, self.path = service, name, path
        self.effects = service.effects
        self.effects.rpush(f"plans of {name}", *plans)
        self._keys_of_others = self._keys()

    def _keys(self):
        return set(self.service.store.scan_iter(f"*:{self.path.strip('/')}:*"))

    def post(self, **body):
        headers = {"Content-Type": "application/json", "Idempotency-Key": self.name}
        path = f"{self.path}?{urlencode({'as': self.name})}"
        with contextlib.suppress(http.client.HTTPException, OSError):  # the worker died
            return self.service.ask(path, "POST", headers, json.dumps(body))
        return NoAnswer()

    def begin(self):
        answers, run = [], self.runs + 1
        thread = threading.Thread(target=lambda: answers.append(self.post()))
        thread.start()
        assert until(lambda: self.worker(run), 10), "the view did not start"
        return thread, answers

    def open_gate(self):
        self.effects.set(f"gate of {self.name}", 1)

    @property
    def runs(self):
        return int(self.effects.get(self.name) or 0)

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
