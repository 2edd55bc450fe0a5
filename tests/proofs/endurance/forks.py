"""A thousand forks of a process that serves: one after the other, and of forks."""

import gc
import os
import sys
import warnings
from collections import Counter

import psutil
from helpers.apps import make_app

from flask_idempotence import idempotent

from .keys import Requests, settings_of
from .soak import figures_of
from .stores import open_server

BATCH = 50
"""Forks between two measurements: most are the parent's own, then a line of descendants."""

DEPTH = 5
"""Generations in such a line: each forks the next, and waits for it."""


class Family:
    """A process that forks; each child sends a key of its own through the parent's application."""

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


def play(kind, count, directory):
    """Fork so often; return the parent's figures after each batch, and what must not be."""
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # it has threads
    path = directory / "effects"
    effects = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open_server(kind, directory) as server:
        server.sample()  # it opens a connection of its own, which the children inherit as well
        family = Family(server, effects)
        marks = []
        while family.forked < count:
            batch = family.forked
            while family.forked < min(count, batch + BATCH - DEPTH):
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
