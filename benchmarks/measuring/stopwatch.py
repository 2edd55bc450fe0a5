"""A stopwatch on the steps of a guarded request: each without the time of those inside it."""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from flask import Flask, Request
from modes import key_mode, lock_mode

from flask_idempotence.guards import key as key_guard
from flask_idempotence.guards import lock as lock_guard
from flask_idempotence.guards import wrapping
from flask_idempotence.request import fingerprint


class Stopwatch:
    """Takes the time of the steps of requests to one application, and of no other.

    Args:
        app: the application; the stopwatch takes its place where requests are sent.

    Attributes:
        requests: the nanoseconds of each step, for every request.
    """

    VIEWS_OWN = "the view, and the body that it would read and parse"

    def __init__(self, app: Flask):
        self.requests: list[dict[str, int]] = []
        self._app = app
        self._running = False
        self._inside: list[int] = []

    def wsgi_app(self, environ: dict, start_response: Callable) -> object:
        """Answer a request, and take the time of its steps."""
        self.requests.append({})
        self._running = True
        try:
            return self._app.wsgi_app(environ, start_response)
        finally:
            self._running = False

    def on(self, step: str, function: Callable) -> Callable:
        """Return a function whose time counts for a step, without that of others inside it."""

        @functools.wraps(function)
        def timed(*arguments, **named):
            if not self._running:
                return function(*arguments, **named)
            inside = self._inside
            inside.append(0)
            start = time.perf_counter_ns()
            try:
                return function(*arguments, **named)
            finally:
                took = time.perf_counter_ns() - start
                steps = self.requests[-1]
                steps[step] = steps.get(step, 0) + took - inside.pop()
                if inside:
                    inside[-1] += took

        return timed


@contextmanager
def watch(app: Flask) -> Iterator[Stopwatch]:
    """Put a stopwatch on the steps of an application's guard, on Redis, as long as this lasts."""
    stopwatch = Stopwatch(app)

    class Watched(Request):
        get_json = stopwatch.on(Stopwatch.VIEWS_OWN, Request.get_json)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(app, "request_class", Watched))
        for step, functions in _steps(app).items():
            for owner, name in functions:
                timed = stopwatch.on(step, getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, timed))
        yield stopwatch


def _steps(app: Flask) -> dict[str, list[tuple[object, str]]]:
    """Return the functions of each step, by what they are attributes of."""
    engine = app.extensions["idempotence"].engine
    return {
        "engine": [(wrapping, "run")],
        "rules of the guard": [
            (lock_guard.LockGuard, "question"),
            (key_guard.KeyGuard, "question"),
        ],
        "identity": [(engine.services.identities, "of")],
        "canonical JSON": [
            (lock_guard, "canonical_request"),
            (key_guard, "canonical_request"),
            (key_guard, "canonical_texts"),
        ],
        "keyed hashes": [(engine.services.keyring, "digest")],
        "claim": [(engine, "_claim_once")],
        "failure policy": [
            (engine.policy, "before_view"),
            (engine.policy, "after_view"),
        ],
        "commands and answers of the store": [
            (engine.store, "claim"),
            (engine.store, "complete"),
        ],
        "round trips": [(engine.store._deployment, "send")],  # noqa: SLF001 - timed
        "keeper": [(engine.keeper, "watch"), (engine.keeper, "unwatch")],
        "record, encoded or decoded": [
            (engine.services.records, "remember"),
            (engine.services.records, "replay"),
        ],
        "settlement": [(engine.settling, "record"), (engine.settling, "finish")],
        Stopwatch.VIEWS_OWN: [
            (lock_mode, "answer"),
            (key_mode, "answer"),
            (fingerprint, "body_of"),
        ],
    }
