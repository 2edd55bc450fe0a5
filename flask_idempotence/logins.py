"""Users that a login library has found before the view, and ids in what stands for a user."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flask import g

from .fingerprint import canonical
from .proxies import actual

if TYPE_CHECKING:
    from flask import Flask, Request

_IDS = ("user_id", "id", "uid", "sub", "username", "email", "client_id")
"""Where an object or a mapping that stands for a user has its id, in order."""


def is_nobody(value: Any) -> bool:
    """Whether a value stands for no user: None, a boolean, and everything empty but 0."""
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, str | bytes):
        return not value.strip()
    return not value and not isinstance(value, int | float)


def users_of(app: Flask, request: Request) -> list[str]:
    """Return the users that login libraries have found; empty where none has found any.

    Libraries that check credentials when they are asked are not asked: only Flask-Login loads a
    user here, from what it has signed itself.
    """
    found = _of_flask_login(app)
    server = request.environ.get("REMOTE_USER")
    if not is_nobody(server):
        found.append(f"user:remote_user={server}")
    known = actual(g)
    if claims := known.get("_jwt_extended_jwt"):
        name = app.config.get("JWT_IDENTITY_CLAIM", "sub")
        found += _named("flask_jwt_extended", claims.get(name))
    for library, attribute in (
        ("flask_httpauth", "flask_httpauth_user"),
        ("authlib", "authlib_server_oauth2_token"),
    ):
        found += _named(library, known.get(attribute))
    return found


def flask_login_user(app: Flask, request: Request) -> list[str]:
    """Return the user of Flask-Login, who is the same at every URL of an application."""
    del request
    return _of_flask_login(app)


def _of_flask_login(app: Flask) -> list[str]:
    if not hasattr(app, "login_manager") or "flask_login" not in sys.modules:
        return []
    from flask_login import current_user  # noqa: PLC0415 - only where it is set up

    user: Any = current_user
    return _named("flask_login", user.get_id()) if user.is_authenticated else []


def _named(library: str, user: Any) -> list[str]:
    text = id_of(user)
    return [] if text is None else [f"user:{library}{text}"]


def id_of(user: Any) -> str | None:
    """Return a text for what stands for a user, such as `=7` or `.id=7`; None for nobody.

    The text of an object is never asked for: it may be a name that others have, too, or differ
    from request to request.
    """
    if is_nobody(user):
        return None
    if (plain := _plain(user)) is not None:
        return f"={plain}"
    if isinstance(user, Mapping):
        return _of_mapping(user)
    if isinstance(user, list | tuple):
        return _as_json(user)
    for name in _IDS:
        value = _attribute(user, name)
        if not is_nobody(value) and (plain := _plain(value)) is not None:
            return f".{type(user).__name__}.{name}={plain}"
    return None


def _attribute(user: Any, name: str) -> Any:
    try:
        return getattr(user, name, None)
    except Exception:  # noqa: BLE001 - the application's, such as a row without its session
        return None


def _of_mapping(user: Mapping[Any, Any]) -> str | None:
    for name in _IDS:
        value = user.get(name)
        if not is_nobody(value) and (plain := _plain(value)) is not None:
            issuer = _plain(user.get("iss"))  # who has named the subject
            return f".{name}={plain}" if issuer is None else f".{name}={plain} {issuer}"
    return _as_json(dict(user))


def _as_json(value: Any) -> str | None:
    try:
        return canonical(value).decode("ascii")
    except (TypeError, ValueError, RecursionError):
        return None


def _plain(value: Any) -> str | None:
    if isinstance(value, str | int | float | UUID):
        return str(value)
    return value.hex() if isinstance(value, bytes) else None
