"""The assertion that a view ran once."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any
from unittest import mock

from flask import Flask, Response, request, request_finished, request_started

from ..guards import wrapping
from ..request.proxies import unproxied
from ..response.refusals import Refusal
from ..signals import claimed, rejected, released, replayed

_GUARDS_OF_VIEWS = ("token", "lock", "key")


@dataclass
class _Call:
    """A request, and its end."""

    route: str
    status: str = "no response"
    began: bool = False
    guards: int = 0
    passed: int = 0
    claim: str = "unguarded: no claim"
    turned_away: str | None = None

    @property
    def ran(self) -> bool:
        return self.began and self.passed == self.guards and self.turned_away is None

    def __str__(self) -> str:
        if self.ran:
            return f"{self.route} -> {self.status}, ran ({self.claim})"
        return f"{self.route} -> {self.status}, {self.turned_away or 'did not reach the view'}"


class _Recorder:
    """Notes the requests to an application, and the ends of those to one endpoint."""

    def __init__(self, endpoint: str) -> None:
        self.calls: list[_Call] = []
        self._endpoint = endpoint
        self._name = f"flask_idempotence.testing.call.{id(self)}"  # in the WSGI environment

    def _current_call(self) -> _Call | None:
        call: _Call | None = request.environ.get(self._name) if request else None
        return call

    def begin(self, app: Flask, /, **_: object) -> None:
        del app
        call = request.environ[self._name] = _Call(f"{request.method} {request.path}")
        self.calls.append(call)

    def finish(self, app: Flask, /, *, response: Response, **_: object) -> None:
        del app
        if (call := self._current_call()) is not None:
            call.status = response.status

    def note(self, attribute: str, text: Callable[[dict[str, Any]], str]) -> Callable[..., None]:
        """Return a receiver that notes a signal of a view's guard in the current call."""

        def receive(_: Flask, /, **sent: Any) -> None:
            call = self._current_call()
            if call is not None and sent["mode"] in _GUARDS_OF_VIEWS:
                setattr(call, attribute, text(sent))

        return receive

    def run(self, run: Callable[..., Any], *asked: Any) -> Any:
        """Run a view behind a guard, and note whether it lets the request pass."""
        *others, view = asked
        call = self._current_call()
        if call is None:
            return run(*asked)

        def passed() -> Any:
            call.passed += 1
            return view()

        call.guards = max(call.guards, call.passed + 1)
        return run(*others, passed)

    def around(self, view: Callable[..., Any], app: Flask) -> Callable[..., Any]:
        """Return a view that notes when it begins."""

        @wraps(view)
        def noted(*args: Any, **kwargs: Any) -> Any:
            call = self._current_call()
            if call is not None:
                call.began = True
                # Others may answer before all of them are passed.
                guards = wrapping.guards_of(view, request.method)
                count = sum(wrapping.covers(guard, request.method) for guard in guards)
                call.guards = max(call.guards, call.passed + count)
            try:
                return app.ensure_sync(view)(*args, **kwargs)
            except Refusal as refusal:
                if call is not None:
                    call.turned_away = _refused(refusal)
                raise
            except Exception as error:
                if call is not None:  # with TESTING no response is made of it
                    call.status = f"{type(error).__name__} raised"
                raise

        return noted

    def check(self) -> None:
        count = sum(call.ran for call in self.calls)
        if count == 1:
            return
        times = f"ran {count} times, not once" if count else "did not run"
        lines = [f"\n  {call}" for call in self.calls] or ["\n  no request was sent"]
        raise AssertionError(f"{self._endpoint!r} {times}:{''.join(lines)}")


def _claim(sent: dict[str, Any]) -> str:
    return f"claimed by a {sent['mode']}"


def _refused(refusal: Refusal) -> str:
    return f"refused: {refusal.slug}"


@contextmanager
def assert_ran_once(app: Flask, endpoint: str) -> Iterator[None]:
    """Assert that the view of an endpoint runs exactly once in a block.

    Requests do not count that a guard refuses or replays, or that a decorator outside the guards
    answers, such as a check of the login; those that ran without a guard do. The failure lists
    every request of the block and its end.

    Example:
        with assert_ran_once(app, "create_order"):
            client.post("/orders")
            client.post("/orders")

    Args:
        app: the application that serves the requests.
        endpoint: the endpoint's name, as for `url_for`; in a blueprint with its name before it.

    Raises:
        AssertionError: the view did not run, or ran more than once.
        LookupError: the application has no such endpoint.
        TypeError: `endpoint` is no text.
    """
    if not isinstance(endpoint, str):
        raise TypeError(
            f"assert_ran_once() takes the endpoint's name, as url_for() does, not {endpoint!r}."
        )
    app = unproxied(app)
    views: dict[str, Any] = app.view_functions
    if endpoint not in views:
        close = difflib.get_close_matches(endpoint, views, 1, 0.4)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise LookupError(f"The application {app.name!r} has no endpoint {endpoint!r}.{hint}")
    recorder, original = _Recorder(endpoint), views[endpoint]
    views[endpoint] = noted = recorder.around(original, app)
    try:
        with (
            request_started.connected_to(recorder.begin, app),
            request_finished.connected_to(recorder.finish, app),
            mock.patch.object(wrapping, "run", partial(recorder.run, wrapping.run)),
            claimed.connected_to(recorder.note("claim", _claim), app),
            released.connected_to(
                recorder.note("claim", lambda sent: f"{_claim(sent)}, then released"), app
            ),
            replayed.connected_to(recorder.note("turned_away", lambda _: "replayed"), app),
            rejected.connected_to(
                recorder.note("turned_away", lambda sent: _refused(sent["error"])), app
            ),
        ):
            yield
    finally:
        if views[endpoint] is noted:  # at the first request, whole-app mode puts guards around it
            views[endpoint] = original
    recorder.check()
