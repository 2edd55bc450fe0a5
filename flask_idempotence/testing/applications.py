"""Helpers for tests: a token, a store, a database, the assertion that a view ran once, signals."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from flask import Flask, Response, current_app, request, request_finished, request_started
from flask.testing import FlaskClient

from ..engine.engine import engine_of
from ..engine.guard import MODES, Guard, ViewGuard
from ..engine.tokens import issue_token
from ..guards import wrapping
from ..request.proxies import actual, unproxied
from ..request.tokens import check_purpose
from ..response.headers import REFUSAL_HEADER, REPLAYED_HEADER
from ..signals import ALL_SIGNALS, SignalName, claimed, released
from ..stores.base import inspectable
from ..stores.uris import open_store

_ASKED = "flask_idempotence.testing.token"


def token_for(client: FlaskClient, purpose: str | None = None) -> str:
    """Return a one-time token for a test client, as the page of a form would hold it.

    It is issued in a request of that client, with its cookies, session and headers, so that it is
    bound to the signed-in user. It needs no token URL.

    Args:
        client: a test client of an application, `app.test_client()`.
        purpose: the purpose of `one_time_token(purpose)`; None for no purpose.

    Raises:
        TypeError: `client` is no Flask test client.
        ValueError: the purpose is not of 1 to 64 letters, digits, `_`, `.` and `-`.
        RuntimeError: the application answered before a token could be issued: a `before_request`
            function refused the client, or the store did not answer.
        ConfigurationError: the extension is not registered on the application.
    """
    if not isinstance(client, FlaskClient):
        raise TypeError(f"token_for() takes a test client, app.test_client(), not {client!r}.")
    check_purpose(purpose)
    app, tokens = client.application, list[str]()
    path = engine_of(app).config.token_url or "/"

    def issue() -> Response | None:
        if _ASKED not in request.environ:
            return None
        current = actual(current_app)
        tokens.append(issue_token(engine_of(current), actual(request), purpose))
        return current.response_class(status=204)

    # After the functions that sign the user in; without a route, which cannot be added any more.
    functions = app.before_request_funcs.setdefault(None, [])
    functions.append(issue)
    try:
        answer = client.get(path, environ_overrides={_ASKED: "1"}, buffered=True)
    finally:
        functions.remove(issue)
    if not tokens:
        raise RuntimeError(
            f"GET {path} was answered with {answer.status} before a token could be issued. If a "
            "before_request function refuses the client, sign it in first."
        )
    return tokens[0]


def clear_store(app: Flask) -> int:
    """Remove the claims, records and tokens of an application: the keys under its own prefix.

    Args:
        app: an application on which the extension is registered.

    Returns:
        How many keys were removed.

    Raises:
        ConfigurationError: its store cannot be listed.
    """
    engine = engine_of(app)
    return inspectable(engine.store).clear(f"{engine.config.prefix}:")


@contextmanager
def temporary_database() -> Iterator[str]:
    """Make an SQLite file with the extension's table for a block, and give its URL.

    For a view with `within=`: set both the session's database and `IDEMPOTENCE_STORAGE_URI` to
    the URL. Each block has a new file, in a directory that is removed with it.

    Example:
        with temporary_database() as url:
            app = create_app(SQLALCHEMY_DATABASE_URI=url, IDEMPOTENCE_STORAGE_URI=url)

    Raises:
        ConfigurationError: SQLAlchemy is not installed.
    """
    # An application may still have the file open; Windows would not remove it then.
    with TemporaryDirectory(prefix="idempotence-", ignore_cleanup_errors=True) as directory:
        url = f"sqlite:///{directory}/test.db"
        open_store(url, {}).create_table()  # type: ignore[attr-defined]  # it is an SqlStore
        yield url


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
        # The WSGI environment has the call by this name.
        self._name = f"flask_idempotence.testing.call.{id(self)}"

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
