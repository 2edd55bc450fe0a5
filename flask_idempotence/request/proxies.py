"""Flask's proxies, opened: what they stand for is looked up once instead of at every use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from flask import session
from flask.globals import request_ctx

if TYPE_CHECKING:
    from flask.sessions import SessionMixin

T = TypeVar("T")


def actual(proxied: T) -> T:
    """Return the object behind one of Flask's proxies."""
    thing: T = proxied._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 - a proxy
    return thing


def session_with_content() -> SessionMixin | None:
    """Return the current session, or None where it is empty.

    Flask notes who looks at a session and adds `Vary: Cookie` to the response. An empty one is
    passed over before that, where this Flask lets us: a response says nothing about it.
    """
    held: Any = getattr(actual(request_ctx), "_session", None)
    if held is not None and not held:
        return None
    return actual(session)
