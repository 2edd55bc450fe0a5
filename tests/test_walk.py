"""The walk of one request: the package's functions that run, its calls, and its climbs.

A climb is a call from a lower wing into a higher one. The engine's calls of a guard are climbs by
design; every other one is a detour. `pytest -n 0 -s` shows the figures, which nothing limits.
"""

import os
import re
import sys
import time
from itertools import pairwise

import pytest
from blinker import NamedSignal
from flask import Flask, jsonify
from helpers.apps import make_app
from helpers.wings import PACKAGE, level_of, wing_of

from flask_idempotence import (
    Idempotence,
    MemoryStore,
    idempotent,
    no_repeat_submit,
    one_time_token,
    signals,
)
from flask_idempotence.engine.engine import Engine

API_KEY = {"X-Api-Key": "5c1d0a3e9b7f"}

SENT = {"a": 1}


def keeps_session_aside():
    """Whether an empty session is seen without `Vary: Cookie` on the response: Flask 3.1.3."""
    with Flask("probe").test_request_context() as context:
        return hasattr(context, "_session")


pytestmark = pytest.mark.skipif(
    not keeps_session_aside(), reason="an older Flask: the long way to a guest's identity"
)


def guarded_client(uri):
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


class Walk:
    """Notes the functions of the package that run, and the calls that lead up.

    `path` is the file of each call; a change of file is a call that is in another one than the
    call before.
    """

    def __init__(self):
        self.functions, self.climbs, self.path = {}, [], []

    def __enter__(self):
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _called(self, frame, event, arg):
        if event != "call" or (callee := place(frame)) is None:
            return
        self.functions[frame.f_code] = None
        self.path.append(frame.f_code.co_filename)
        caller, outer = None, frame.f_back
        while outer is not None and caller is None:
            caller, outer = place(outer), outer.f_back
        if caller and level_of(wing_of(callee)) > level_of(wing_of(caller)):
            self.climbs.append(f"{caller} -> {callee}:{frame.f_code.co_name}")

    def __str__(self):
        changes = sum(one != other for one, other in pairwise(self.path))
        counts = len(set(self.path)), len(self.functions), len(self.path), changes
        return "{} files, {} functions, {} calls, {} changes of file".format(*counts)


def place(frame):
    is_ours = frame.f_code.co_filename.startswith(f"{PACKAGE}{os.sep}")
    return frame.f_globals["__name__"].partition(".")[2] if is_ours else None


def walks_at(uri):
    """Return the walk of each request, warmed up by three of its kind.

    They are fewer than the 64 after which late changes of settings are searched for again.
    """
    client = guarded_client(uri)

    def requests(name):
        user = {"Authorization": "Basic dXNlcjpwYXNz"}
        key = {"Idempotency-Key": f"{name}-4f1d2c7a90b84e55"}
        spent = {"Idempotence-Token": client.get("/token").json["token"]}
        return {
            "lock, first": (f"/lock/{name}", {}),
            "lock, first, with an API key": (f"/lock/{name}", API_KEY),
            "lock, first, by a signed-in user": (f"/lock/{name}", user),
            "lock, refused": (f"/lock/{name}", {}),
            "token, spent": ("/token", spent),
            "key, first": ("/key", key),
            "key, first, with an API key": ("/key", key | API_KEY),
            "key, first, by a signed-in user": ("/key", key | user),
            "key, replayed": ("/key", key),
            "once, first": (f"/once/{name}", {}),
        }

    for name in ("one", "two", "three", "now"):
        found = {}
        for kind, (path, headers) in requests(name).items():
            with Walk() as found[kind]:
                response = client.post(path, json=SENT, headers=headers)
            assert response.status_code == (409 if kind == "lock, refused" else 200), kind
            assert ("Idempotent-Replayed" in response.headers) == (kind == "key, replayed")
    return found


@pytest.fixture
def walks(redis_url, monkeypatch):
    for signal in vars(signals).values():
        if isinstance(signal, NamedSignal):  # another test's application may still listen
            monkeypatch.setattr(signal, "receivers", {})
    for owner in (Engine, MemoryStore):  # another test may have moved the clock
        monkeypatch.setattr(owner, "clock", time.monotonic)
    return {"memory": walks_at("memory://"), "redis": walks_at(redis_url)}


def test_the_figures_are_shown(walks, pay_app):
    books = pay_app()
    for key in ("one", "two", "three", "now"):
        with Walk() as within:
            assert books.post(key=f"{key}-4f1d2c7a90b84e55").status_code == 201
    for name, walk in {**walks["memory"], "key, within=": within}.items():
        run = [
            f"{os.path.relpath(each.co_filename, PACKAGE)}: {each.co_qualname}"
            for each in walk.functions
        ]
        print(f"{name}: {walk}", *run, *walk.climbs, sep="\n    ")  # noqa: T201 - pytest -s


def test_only_the_engine_climbs_and_only_to_a_guard(walks):
    climbs = {
        climb for found in walks.values() for walk in found.values() for climb in walk.climbs
    }
    assert climbs
    assert [climb for climb in climbs if not re.match(r"engine\..* -> guards\.", climb)] == []
