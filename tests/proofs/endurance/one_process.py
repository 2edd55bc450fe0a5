"""One process, and what grows in it: a million distinct keys, ten thousand leases, forks."""

import gc
import io
import json
import os
import sys
import threading
import time
import warnings
from collections import Counter
from contextlib import contextmanager

import psutil
from helpers.apps import make_app
from helpers.keeper_harness import leased_claim
from werkzeug.test import create_environ

from flask_idempotence import MemoryStore, idempotent, no_repeat_submit
from flask_idempotence.engine.store_calls import Instrument
from flask_idempotence.stores.base import NO_FINGERPRINT

from .soak import figures_of
from .stores import STORES, open_server

TTL = 30.0
"""Seconds for which a record is kept, on a server."""

PER_SECOND = 1000.0
"""Requests in a second of the memory store's clock: it has as many keys on any machine."""

LIVE = 0.03
"""Part of all keys that a memory store has at a time."""

FULL = 0.05
"""Part of all keys for which a full one has room: it refuses before the process is measured."""

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
    return {"IDEMPOTENCE_STORAGE_URI": server.url, "IDEMPOTENCE_STORAGE_OPTIONS": {"deadline": 5}}


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


def send_keys(kind, count, directory, leak=False):
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


FORKS = 50
"""Forks between two measurements: most are the parent's own, then a line of descendants."""

DEPTH = 5
"""Generations in such a line: each forks the next, and waits for it."""


class Family:
    def __init__(self, server, effects):
        app = make_app(**settings_of(server))

        @app.post("/orders/<name>")
        @idempotent
        def order(name):
            os.write(effects, f"{name}\n".encode())
            return {"pid": os.getpid()}, 201

        self._requests = Requests(app)
        self.forked = 0
        self.failed = []
        self.names = []

    def serve(self, name):
        before = self._requests.statuses["201 CREATED"]
        for _ in range(2):
            self._requests.send(f"/orders/{name}", 1, HTTP_IDEMPOTENCY_KEY=f'"{name}"')
        return self._requests.statuses["201 CREATED"] == before + 2

    def fork(self, name, depth=1):
        self.names += [f"{name}.{generation}" for generation in range(depth)]
        self.forked += depth
        if status := self._child(name, 0, depth):
            self.failed.append(status)

    def _child(self, name, generation, depth):
        child = os.fork()
        if child == 0:
            os._exit(self._live(name, generation, depth))
        return os.waitpid(child, 0)[1]

    def _live(self, name, generation, depth):
        try:
            if not self.serve(f"{name}.{generation}"):
                return 2
            if generation + 1 < depth and self._child(name, generation + 1, depth):
                return 3
            # What it holds must still be its own after its child has ended.
            return 0 if self.serve(f"{name}.{generation}") else 4
        except BaseException as error:
            sys.stderr.write(f"{name}: {error!r}\n")
            return 1


def fork_often(kind, count, directory):
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # it has threads
    path = directory / "effects"
    effects = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open_server(kind, directory) as server:
        server.sample()  # it opens a connection of its own, which the children inherit as well
        family = Family(server, effects)
        marks = []
        while family.forked < count:
            batch = family.forked
            while family.forked < min(count, batch + FORKS - DEPTH):
                family.fork(f"child{family.forked}")
            family.fork(f"line{family.forked}", DEPTH)
            family.serve(f"parent{family.forked}")
            family.names.append(f"parent{family.forked}")
            gc.collect()
            connections = server.sample().get("connections", 0)
            marks.append({**figures_of(os.getpid()), "connections": connections})
        children = psutil.Process().children()
        zombies = [each for each in children if each.status() == psutil.STATUS_ZOMBIE]
    os.close(effects)
    runs = Counter(path.read_text().splitlines())
    return marks, {
        "children failed": family.failed,
        "keys ran twice": [name for name, times in runs.items() if times > 1],
        "keys did not run": [name for name in family.names if name not in runs],
        "zombies": [each.pid for each in zombies],
    }


LOOKED_AT = 1000


class Renewals(Instrument):
    latest = 0.0

    def renewal_delay(self, seconds):
        self.latest = max(self.latest, seconds)


class HeldLeases:
    """Claims that an application's own keeper renews, and looks at them from the store's side."""

    def __init__(self, url, lease):
        self._app = make_app(IDEMPOTENCE_STORAGE_URI=url, IDEMPOTENCE_LEASE=lease)
        self._engine = self._app.extensions["idempotence"].engine
        self.renewals = Renewals()
        self._engine.store_calls.instruments += (self.renewals,)
        self._lease, self.holds, self._marks = lease, [], {}
        self.missing = self.threads = 0
        self.shortest = lease

    def hold(self, count):
        began = time.monotonic()
        for number in range(count):
            due = began + self._lease / 3 * number / count
            time.sleep(max(0.0, due - time.monotonic()))
            key = f"held:{number}"
            claim = leased_claim(self._app, self._lease, self._engine.now(), key)
            self._engine.store.claim(key, claim.owner, NO_FINGERPRINT, self._lease, 0)
            self._engine.keeper.watch(claim)
            self.holds.append(claim)

    def look(self):
        self.threads = max(self.threads, threading.active_count())
        for first in range(0, len(self.holds), LOOKED_AT):
            holds = self.holds[first : first + LOOKED_AT]
            found = self._engine.store.peek_all([hold.key for hold in holds])
            for hold, entry in zip(holds, found, strict=True):
                # The mark is that of its first owner, as long as it was never lost.
                mark = entry and self._marks.setdefault(hold, entry.mark)
                if entry is None or not entry.lease or entry.mark != mark:
                    self.missing += 1
                else:
                    self.shortest = min(self.shortest, entry.lease)

    def end(self):
        for hold in self.holds:
            self._engine.keeper.unwatch(hold)


def hold_leases(kind, count, directory, lease, seconds):
    with open_server(kind, directory) as server:
        held = HeldLeases(server.url, lease)
        threads = threading.active_count()
        held.hold(count)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            held.look()
            time.sleep(1)
        held.end()
    return {
        "lost": sum(hold.lost for hold in held.holds),
        "missing in the store": held.missing,
        "left of a lease, at least": held.shortest,
        "latest renewal": held.renewals.latest,
        "threads that were started": held.threads - threads,
    }
