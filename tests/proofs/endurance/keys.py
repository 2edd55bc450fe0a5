"""A million distinct keys, senders, paths and bodies through the application of one process."""

import gc
import io
import json
import os
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager

from helpers.apps import make_app
from werkzeug.test import create_environ

from flask_idempotence import MemoryStore, idempotent, no_repeat_submit

from .soak import figures_of
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


class Requests:
    def __init__(self, app):
        self._app = app
        self._environ = create_environ("/", method="POST", content_type="application/json")
        self.statuses = Counter()

    def send(self, path, number, **headers):
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

    def _begin(self, status, *_):
        self.statuses[status] += 1


def settings_of(server):
    return {
        "IDEMPOTENCE_STORAGE_URI": server.url,
        "IDEMPOTENCE_STORAGE_OPTIONS": {"deadline": 5},
    }


@contextmanager
def application(kind, count, directory, done):
    """Yield an application, and what counts the keys in its store.

    `full` is a store in memory from which no key expires, so that it soon refuses all.
    """

    def view(number):
        return {"number": number}, 201

    def with_views(app):
        app.add_url_rule("/keys/<int:number>", "key", idempotent()(view), methods=["POST"])
        guarded = no_repeat_submit(1)(view)
        app.add_url_rule("/locks/<int:number>", "lock", guarded, methods=["POST"])
        return app

    if kind in STORES:
        with open_server(kind, directory) as server:
            app = make_app(IDEMPOTENCE_KEY_TTL=TTL, **settings_of(server))
            yield with_views(app), lambda: server.sample()["keys"]
    else:
        ttl = LIVE * count / PER_SECOND if kind == "memory" else 1e6
        store = MemoryStore(max_entries=int(FULL * count), clock=lambda: done() / PER_SECOND)
        app = make_app(store=store, IDEMPOTENCE_KEY_TTL=ttl)
        yield with_views(app), lambda: len(store._values)


def figures():
    gc.collect()
    return {
        **figures_of(os.getpid()),
        "allocated blocks": sys.getallocatedblocks(),
        "collected objects": len(gc.get_objects()),
        "threads": min(_threads() for _ in range(LOOKS)),
    }


def _threads():
    time.sleep(0.1)
    return threading.active_count()


def play(kind, count, directory, leak=False):
    """Send so many keys, every tenth with a lock as well; return the figures at each mark."""
    number = 0
    kept = []
    with application(kind, count, directory, lambda: number) as (app, keys_in):
        requests = Requests(app)
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
