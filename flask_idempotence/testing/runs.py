"""The assertion that a view ran once, and the signals of an application in order."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any
from unittest import mock

from flask import Flask, Response, request, request_finished, request_started

from ..engine.guard import MODES, Guard, ViewGuard
from ..guards import wrapping
from ..request.proxies import unproxied
from ..response.headers import REFUSAL_HEADER, REPLAYED_HEADER
from ..signals import ALL_SIGNALS, SignalName, claimed, released


@dataclass
class _Call:
    route: str
    status: str = "no response"
    began: bool = False
    guards_left: int = 0
    claim: str = "unguarded: no claim"
    turned_away: str | None = None

    @property
    def ran(self) -> bool:
        return self.began and self.guards_left == 0 and self.turned_away is None

    def __str__(self) -> str:
        if self.ran:
            return f"{self.route} -> {self.status}, ran ({self.claim})"
        return f"{self.route} -> {self.status}, {self.turned_away or 'did not reach the view'}"


class _Recorder:
    """Lists the requests to an application, and the ends of those to one endpoint."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self._name = f"flask_idempotence.testing.call.{id(self)}"  # in the WSGI environment

    def _current_call(self) -> _Call | None:
        call: _Call | None = request.environ.get(self._name) if request else None
        return call

    def begin(self, _: Flask, /, **__: object) -> None:
        call = request.environ[self._name] = _Call(f"{request.method} {request.path}")
        self.calls.append(call)

    def end(self, _: Flask, /, *, response: Response, **__: object) -> None:
        if (call := self._current_call()) is not None:
            call.status = response.status.upper()
            if slug := response.headers.get(REFUSAL_HEADER):
                call.turned_away = f"refused: {slug}"
            elif REPLAYED_HEADER in response.headers:
                call.turned_away = "replayed"

    def set_claim(self, how: str, _: Flask, /, *, mode: str, **__: object) -> None:
        call = self._current_call()
        if call is not None and issubclass(MODES.get(mode, Guard), ViewGuard):
            call.claim = f"claimed by a {mode}{how}"

    def run(self, run: Callable[..., Any], *asked: Any) -> Any:
        """Run a view behind a guard, and see whether it lets the request pass."""
        *others, view = asked
        call = self._current_call()
        if call is None:
            return run(*asked)

        def passed() -> Any:
            call.guards_left -= 1
            return view()

        call.guards_left = max(call.guards_left, 1)
        return run(*others, passed)

    def around(self, view: Callable[..., Any], app: Flask) -> Callable[..., Any]:
        """Return a view that says when it begins."""

        @wraps(view)
        def listed(*args: Any, **kwargs: Any) -> Any:
            call = self._current_call() or _Call("")  # a request outside the block has none
            call.began = True
            # Others may answer before all of them are passed.
            guards = wrapping.guards_of(view, request.method)
            count = sum(wrapping.covers(guard, request.method) for guard in guards)
            call.guards_left = max(call.guards_left, count)
            try:
                return app.ensure_sync(view)(*args, **kwargs)
            except Exception as error:
                call.status = f"{type(error).__name__} raised"  # TESTING: it makes no response
                raise

        return listed

    def check(self, endpoint: str) -> None:
        if (count := sum(call.ran for call in self.calls)) != 1:
            times = f"ran {count} times, not once" if count else "did not run"
            lines = [f"\n  {call}" for call in self.calls] or ["\n  no request was sent"]
            raise AssertionError(f"{endpoint!r} {times}:{''.join(lines)}")


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
    recorder, original = _Recorder(), views[endpoint]
    views[endpoint] = listed = recorder.around(original, app)
    try:
        with (
            request_started.connected_to(recorder.begin, app),
            request_finished.connected_to(recorder.end, app),
            mock.patch.object(wrapping, "run", partial(recorder.run, wrapping.run)),
            claimed.connected_to(partial(recorder.set_claim, ""), app),
            released.connected_to(partial(recorder.set_claim, ", then released"), app),
        ):
            yield
    finally:
        if views[endpoint] is listed:  # at the first request, whole-app mode puts guards around it
            views[endpoint] = original
    recorder.check(endpoint)


@dataclass(eq=False)
class SignalRecorder:
    """The signals that were sent within a block.

    Attributes:
        events: pairs of a signal's name and its arguments, in order.
    """

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of the signals sent, in order."""
        return [name for name, _ in self.events]

    def count(self, name: SignalName) -> int:
        """Return how often the signal of this name was sent."""
        return self.names.count(name)


@contextmanager
def record_signals(app: Flask) -> Iterator[SignalRecorder]:
    """Record every signal that an application sends within a block, in a `SignalRecorder`."""
    recorder = SignalRecorder()
    with ExitStack() as stack:
        for signal in ALL_SIGNALS:

            def append(_app: Flask, /, *, _name: str = signal.name, **arguments: Any) -> None:
                recorder.events.append((_name, arguments))

            stack.enter_context(signal.connected_to(append, sender=unproxied(app)))
        yield recorder
