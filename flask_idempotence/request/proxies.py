"""The objects behind Flask's proxies, looked up once instead of at every use."""

from __future__ import annotations

from operator import methodcaller
from typing import Protocol, TypeVar

from flask.globals import request_ctx
from flask.sessions import SessionMixin
from werkzeug.local import LocalProxy

T = TypeVar("T")


class _Actual(Protocol):
    def __call__(self, proxied: T, /) -> T: ...


actual: _Actual = methodcaller("_get_current_object")
"""Return the object behind one of Flask's proxies."""


def unproxied(each: T) -> T:
    return actual(each) if isinstance(each, LocalProxy) else each


def session_with_content() -> SessionMixin | None:
    """Return the current session, or None where it is empty.

    Flask adds `Vary: Cookie` to the response once a session is read. An empty one is passed over
    before that, where Flask keeps it aside: a response says nothing about it.
    """
    context = actual(request_ctx)
    held: SessionMixin | None = getattr(context, "_session", None)
    if held is not None and not held:
        return None
    return context.session
