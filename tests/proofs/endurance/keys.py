"""A million distinct keys, senders, paths and bodies through the application of one process."""

import gc
import io
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

from flask import Flask
from werkzeug.test import create_environ

from flask_idempotence import Idempotence, MemoryStore, idempotent, no_repeat_submit

from .processes import figures_of, usage_of
from .stores import STORES, open_server

TTL = 30.0
"""Seconds for which a record is kept, on a server."""

PER_SECOND = 1000.0
"""Requests in a second of the memory store's clock: it has as many keys on any machine."""

LIVE = 0.03
"""Part of all keys that a memory store has at a time."""

FULL = 0.1
"""Part of all keys for which a full one has room."""

MARKS = (0.01, 0.1, 0.5, 1.0)
"""Parts of the count at which the process is measured; the second is compared with the last."""

LOOKS = 10
"""At the threads of a process, of which the least count: one that prunes rows soon ends."""

KINDS = ("memory", "full", *STORES)
"""Stores; `full` is one in memory from which no key expires, so that it soon refuses all."""


class Requests:
    def __init__(self, app: Flask):
        self._app = app
        self._environ = create_environ("/", method="POST", content_type="application/json")
        self.statuses: Counter[str] = Counter()

    def send(self, path: str, number: int, **headers: str) -> None:
        """Send a request that has nothing in common with another number's."""
        body = json.dumps({"order": number}).encode()
        environ = {
            **self._environ,
            "PATH_INFO": path,
            "wsgi.input": io.BytesIO(body),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_AUTHORIZATION": f"Bearer user{number}",
            "HTTP_USER_AGENT": f"client {number}",
            **headers,
        }
        answer = self._app.wsgi_app(environ, self._begin)
        for _ in answer:
            pass
        answer.close()

    def _begin(self, status: str, *_: object) -> None:
        self.statuses[status] += 1


@contextmanager
def store_of(kind: str, count: int, directory: Path, done: Callable[[], int]):
    """Yield the store of an application, or its URI; and what counts its keys."""
    if kind in STORES:
        with open_server(kind, directory) as server:
            yield server.url, lambda: server.sample()["keys"]
    else:
        most = int(FULL * count)
        store = MemoryStore(max_entries=most, clock=lambda: done() / PER_SECOND)
        yield store, lambda: len(store._values)


def application(store: object, ttl: float) -> Flask:
    app = Flask("keys")
    app.config.update(SECRET_KEY="a secret for the tests", IDEMPOTENCE_KEY_TTL=ttl)
    if isinstance(store, str):
        app.config["IDEMPOTENCE_STORAGE_URI"] = store
        app.config["IDEMPOTENCE_STORAGE_OPTIONS"] = {"deadline": 5}
        Idempotence(app)
    else:
        app.testing = True  # without the warning of a store that no other process shares
        Idempotence(app, store=store)

    def view(number: int):
        return {"number": number}, 201

    app.add_url_rule("/keys/<int:number>", "key", idempotent()(view), methods=["POST"])
    app.add_url_rule("/locks/<int:number>", "lock", no_repeat_submit(1)(view), methods=["POST"])
    return app


def figures() -> dict[str, float]:
    gc.collect()
    return {
        **figures_of(usage_of(os.getpid())),
        "allocated blocks": sys.getallocatedblocks(),
        "collected objects": len(gc.get_objects()),
        "threads": min(_threads() for _ in range(LOOKS)),
    }


def _threads() -> int:
    time.sleep(0.1)
    return threading.active_count()


def play(kind, count, directory, *, leak=False):
    """Send so many keys, every tenth with a lock as well; return the figures at each mark."""
    number = 0
    ttl = {"memory": LIVE * count / PER_SECOND, "full": 1e6}.get(kind, TTL)
    kept = []
    with store_of(kind, count, directory, lambda: number) as (store, keys_in):
        requests = Requests(application(store, ttl))
        marks = []
        for mark in MARKS:
            while number < mark * count:
                number += 1
                key = f'"order {number}"'
                requests.send(f"/keys/{number}", number, HTTP_IDEMPOTENCY_KEY=key)
                if number % 10 == 0:
                    requests.send(f"/locks/{number}", number)
                if leak:
                    kept.append(key)
            marks.append({"keys sent": number, "keys in the store": keys_in(), **figures()})
    return marks, requests.statuses
