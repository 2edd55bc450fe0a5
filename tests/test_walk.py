"""The walk of one request: the package's functions that run, their files, and its climbs.

A climb is a call from a lower wing into a higher one. The engine's calls of a guard are climbs by
design; every other one is a detour.
"""

import re
import sys
import time
from pathlib import Path

import pytest
from blinker import NamedSignal
from flask import Flask, jsonify
from helpers.apps import make_app
from helpers.wings import PACKAGE, level_of

from flask_idempotence import (
    Idempotence,
    MemoryStore,
    idempotent,
    no_repeat_submit,
    one_time_token,
    signals,
)
from flask_idempotence.engine.claim import Owners
from flask_idempotence.engine.engine import Engine

MOST = {
    "lock, first": 69,
    "lock, first, with an API key": 70,
    "lock, refused": 66,
    "token, spent": 58,
    "key, first": 81,
    "key, first, with an API key": 82,
    "key, replayed": 61,
    "once, first": 64,
}
"""Functions of the package that each request runs on memory, at most: one that a reader meets
twice counts once. A change that needs fewer lowers them."""

API_KEY = {"X-Api-Key": "5c1d0a3e9b7f"}

SENT = {"a": 1}


def keeps_session_aside():
    """Whether an empty session is seen without `Vary: Cookie` on the response: Flask 3.1.3."""
    with Flask("probe").test_request_context() as context:
        return hasattr(context, "_session")


pytestmark = pytest.mark.skipif(
    not keeps_session_aside(), reason="an older Flask: the long way to a guest's identity"
)


class Recorder:
    """Notes the functions that run, their files, and the calls that lead up."""

    def __init__(self):
        self.functions = set()
        self.files = set()
        self.climbs = []
        self._file_of = {}

    def __enter__(self):
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _called(self, frame, event, arg):
        if event != "call" or (callee := self._file(frame)) is None:
            return
        self.functions.add(frame.f_code)
        self.files.add(callee)
        caller, outer = None, frame.f_back
        while outer is not None and caller is None:
            caller, outer = self._file(outer), outer.f_back
        if caller is not None and level_of(wing(callee)) > level_of(wing(caller)):
            self.climbs.append(f"{caller} -> {callee}:{frame.f_code.co_name}")

    @property
    def length(self):
        return len(self.functions), len(self.files), len(self.climbs)

    def _file(self, frame):
        name = frame.f_code.co_filename
        if name not in self._file_of:
            path = Path(name)
            inside = path.is_relative_to(PACKAGE)
            self._file_of[name] = path.relative_to(PACKAGE) if inside else None
        return self._file_of[name]


def wing(path):
    return path.with_suffix("").parts[0]


def guarded_client(uri):
    """Return a client that sends no cookies, to views behind each guard."""
    idempotence = Idempotence()
    app = make_app(idempotence=idempotence, IDEMPOTENCE_STORAGE_URI=uri)

    @app.post("/lock/<name>")
    @no_repeat_submit(interval=20)
    def lock(name):
        return jsonify(name=name)

    @app.post("/token")
    @one_time_token()
    def token():
        return jsonify(done=True)

    @app.post("/key")
    @idempotent()
    def key():
        return jsonify(done=True)

    @app.post("/once/<name>")
    def once(name):
        with idempotence.once("walk", name) as operation:
            return jsonify(first=operation.first)

    return app.test_client(use_cookies=False)


def sender(client, path, headers=None):
    """Return a call that sends one request."""
    return lambda: client.post(path, json=SENT, headers=headers)


def keyed(client, name, **headers):
    headers["Idempotency-Key"] = f"{name}-4f1d2c7a90b84e55"
    return sender(client, "/key", headers)


def spender(client):
    return sender(client, "/token", {"Idempotence-Token": client.get("/token").json["token"]})


def walks_at(uri):
    """Return the walk of each request, warmed up by three of its kind.

    They are fewer than the 64 after which late changes of settings are searched for again.
    """
    client = guarded_client(uri)
    for name in ("one", "two", "three"):
        for send in (
            *(sender(client, f"/lock/{name}"),) * 2,
            sender(client, f"/lock/{name}", API_KEY),
            spender(client),
            *(keyed(client, name),) * 2,
            keyed(client, name, **API_KEY),
            sender(client, f"/once/{name}"),
        ):
            send()
    requests = {
        "lock, first": (200, sender(client, "/lock/now")),
        "lock, first, with an API key": (200, sender(client, "/lock/now", API_KEY)),
        "lock, refused": (409, sender(client, "/lock/now")),
        "token, spent": (200, spender(client)),
        "key, first": (200, keyed(client, "now")),
        "key, first, with an API key": (200, keyed(client, "now", **API_KEY)),
        "key, replayed": (200, keyed(client, "now")),
        "once, first": (200, sender(client, "/once/now")),
    }
    found = {}
    for name, (status, send) in requests.items():
        with Recorder() as recorder:
            response = send()
        assert response.status_code == status, name
        assert ("Idempotent-Replayed" in response.headers) == (name == "key, replayed")
        found[name] = recorder
    return found


@pytest.fixture
def walks(redis_url, monkeypatch):
    for signal in vars(signals).values():
        if isinstance(signal, NamedSignal):  # another test's application may still listen
            monkeypatch.setattr(signal, "receivers", {})
    monkeypatch.setattr(Owners, "_GOOD_FOR", 1e9)  # else now and then a request draws new ones
    for owner in (Engine, MemoryStore):  # another test may have moved the clock
        monkeypatch.setattr(owner, "clock", time.monotonic)
    return {"memory": walks_at("memory://"), "redis": walks_at(redis_url)}


def report(walks):
    """Return the files of each request, and its climbs."""
    lines = []
    for store, found in walks.items():
        for name, walk in found.items():
            lines.append(
                "{}, {}: {} functions, {} files, {} climbs".format(name, store, *walk.length)
            )
            lines += [f"    {path}" for path in sorted(walk.files)]
            lines += [f"    up: {climb}" for climb in walk.climbs]
    return "\n".join(lines)


def test_no_request_runs_more_functions(walks):
    print(report(walks))  # noqa: T201 - pytest -s shows the files
    counts = {name: len(walk.functions) for name, walk in walks["memory"].items()}
    assert counts.keys() == MOST.keys()
    assert {name: count for name, count in counts.items() if count > MOST[name]} == {}, counts


def test_only_the_engine_climbs_and_only_to_a_guard(walks):
    climbs = {
        climb for found in walks.values() for walk in found.values() for climb in walk.climbs
    }
    assert climbs
    assert [climb for climb in climbs if not re.match("engine/.* -> guards/", climb)] == []
