"""The objects behind Flask's proxies, looked up once instead of at every use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import flask.globals
from flask import Flask, Request, request
from flask.globals import app_ctx
from flask.sessions import SessionMixin
from werkzeug.local import LocalProxy

if TYPE_CHECKING:
    from flask.ctx import RequestContext

T = TypeVar("T")


class _Actual(Protocol):
    def __call__(self, proxied: T, /) -> T: ...


# Return the object behind one of Flask's proxies.
actual: _Actual = methodcaller("_get_current_object")

_REQUEST_CONTEXT: Any = vars(flask.globals).get("request_ctx", app_ctx)
# Whether Flask has one kind of context, which its methods take first (since Flask 3.2).
_HAS_ONE_CONTEXT = _REQUEST_CONTEXT is app_ctx

# Return the context of the current request; `RuntimeError` without one.
current_context: Callable[[], RequestContext] = partial(actual, _REQUEST_CONTEXT)

# Return the current request; `RuntimeError` without one.
current_request: Callable[[], Request] = partial(actual, request)


def unproxied(each: T) -> T:
    return actual(each) if isinstance(each, LocalProxy) else each


def handle_user_exception(app: Flask, error: Exception) -> Any:
    """Return the value of the application's handler of an error, as Flask calls it."""
    handle: Callable[..., Any] = app.handle_user_exception
    return handle(current_context(), error) if _HAS_ONE_CONTEXT else handle(error)


def session_with_content() -> SessionMixin | None:
    """Return the current session, or None where it is empty.

    Flask adds `Vary: Cookie` to the response once a session is read. An empty one is passed over
    before that: a response says nothing about it.
    """
    held = _session()
    return None if held is not None and not held else current_context().session


def _session() -> SessionMixin | None:
    """Return the session without reading it."""
    context = vars(current_context())
    session: SessionMixin | None = context.get("_session", context.get("session"))
    return session


def is_session_read() -> bool:
    """Return whether the session was read or changed: its response has `Vary: Cookie`."""
    return getattr(_session(), "accessed", None) is True


@contextmanager
def session_as_it_was() -> Iterator[None]:
    """Let a session that only a guard has read count as unread: else Flask adds `Vary: Cookie`."""
    session = _session()
    is_unread = getattr(session, "accessed", None) is False
    try:
        yield
    finally:
        if is_unread and session is not None and not session.modified:
            session.accessed = False
