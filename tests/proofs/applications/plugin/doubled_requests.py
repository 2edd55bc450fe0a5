"""A plugin of pytest that puts the extension on every application and sends requests twice.

It runs in the environment of another project's suite: the variant is in `DOUBLED`, the store in
`DOUBLED_STORE`, and each request that it has sent twice is a line of the file `DOUBLED_LOG`.
"""

import copy
import io
import itertools
import json
import os
import uuid
from pathlib import Path

from flask import Flask, request
from flask.globals import _cv_app
from werkzeug.test import Client

from flask_idempotence import Idempotence

VARIANT = os.environ["DOUBLED"]
STORE, LOG = os.environ["DOUBLED_STORE"], Path(os.environ["DOUBLED_LOG"])
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
WHOLE = {"KEY_ALL_ROUTES": True, "KEY_METHODS": UNSAFE}
VARIANTS = {
    "installed": {},
    "observing": {**WHOLE, "OBSERVE": True, "KEY_REQUIRED": True},
    "observing with keys": {**WHOLE, "OBSERVE": True, "KEY_REQUIRED": True},
    "whole app": WHOLE,
    "fresh keys": WHOLE,
    "twice, first": WHOLE,
    "twice, replay": WHOLE,
    "made, twice": WHOLE,
}
"""Settings by variant; of a request sent twice, the test sees the first answer or the replay.

`made, twice` registers the extension as soon as the application is made, before its settings.
"""

VOLATILE = {"date", "set-cookie", "idempotent-replayed", "idempotent-expires-in"}
"""Headers that the way out makes again for each answer, and those of the extension."""

_numbers = itertools.count()
_make = Flask.__init__
_answer = Flask.wsgi_app
_dispatch = Flask.dispatch_request
_run = Client.run_wsgi_app


def _log(**told):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    with LOG.open("a") as file:
        file.write(json.dumps({"variant": VARIANT, "test": test, **told}) + "\n")


def _register(self):
    settings = {"STORAGE_URI": STORE, "TOKEN_URL": None}
    settings["STORAGE_OPTIONS"] = {"deadline": 30} if STORE.startswith("redis") else {}
    settings |= {"PREFIX": f"app{next(_numbers)}", "HASH_KEY": "a key of the doubled requests"}
    for name, value in (settings | VARIANTS[VARIANT]).items():
        self.config[f"IDEMPOTENCE_{name}"] = value
    try:
        Idempotence(self)
    except Exception as error:
        self.extensions["idempotence"] = None
        _log(fault="init_app", text=repr(error))


def _init(self, *args, **kwargs):
    _make(self, *args, **kwargs)
    if VARIANT.startswith("made"):
        _register(self)


def _wsgi_app(self, environ, start_response):
    """Register the extension before the first request, where a factory would at its end."""
    if "idempotence" not in self.extensions and not self._got_first_request:
        _register(self)
    return _answer(self, environ, start_response)


def _dispatch_request(self):
    """Note that a request has reached its view."""
    if request.routing_exception is None:
        request.environ.get("doubled.reached", []).append(True)  # the client copies the environ
    return _dispatch(self)


def _run_wsgi_app(self, environ, buffered=False):
    if environ["REQUEST_METHOD"] not in UNSAFE or VARIANT in (
        "installed",
        "observing",
        "whole app",
    ):
        return _run(self, environ, buffered)
    environ.setdefault("HTTP_IDEMPOTENCY_KEY", str(uuid.uuid4()))
    if "twice" not in VARIANT:
        return _run(self, environ, buffered)
    body = environ["wsgi.input"].read()
    sent = [environ | {"wsgi.input": io.BytesIO(body), "doubled.reached": []} for _ in range(2)]
    environ["wsgi.input"] = io.BytesIO(body)  # for a redirect that the client follows
    seen = VARIANT == "twice, replay"
    sent[not seen].pop("werkzeug.debug.preserve_context", None)  # the test looks into the other's
    cookies, kept = copy.copy(self._cookies), _g()
    before = dict(kept)
    first = _whole(_run(self, sent[0], buffered))
    cookies, self._cookies = self._cookies, cookies  # the client adds its cookies as it sends
    after = _replace(kept, before)
    second = _whole(_run(self, sent[1], buffered))
    self._cookies = cookies
    _replace(kept, after)
    _compare(sent[0], first, second)
    return (first, second)[seen]


def _g():
    """Return what `g` has in a context that the test has pushed around its requests."""
    context = _cv_app.get(None)
    return vars(context.g) if context else {}


def _replace(mapping, by):
    old = dict(mapping)
    mapping.clear()
    mapping.update(by)
    return old


def _whole(answer):
    chunks, status, headers = answer
    try:
        body = list(chunks)
    finally:
        getattr(chunks, "close", lambda: None)()
    return body, status, headers


def _compare(environ, first, second):
    told = {"method": environ["REQUEST_METHOD"], "path": environ["PATH_INFO"]}
    told |= {"first": first[1][:3], "second": second[1][:3]}
    told["reached"] = bool(environ["doubled.reached"])
    told["replayed"] = "Idempotent-Replayed" in second[2]
    told["refusal"] = second[2].get("Idempotence-Refusal")
    differs = ["status"] if first[1] != second[1] else []
    differs += ["body"] if b"".join(first[0]) != b"".join(second[0]) else []
    heads = [{(name.lower(), value) for name, value in answer[2]} for answer in (first, second)]
    names = {name for name, _ in heads[0] ^ heads[1]} - VOLATILE
    _log(**told, differs=differs + sorted(names))


Flask.__init__ = _init
Flask.wsgi_app = _wsgi_app
Flask.dispatch_request = _dispatch_request
Client.run_wsgi_app = _run_wsgi_app
