"""Users found by a login library before the view, and the ids of user objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flask import g

from ..errors import ConfigurationError
from .fingerprint import canonical, canonical_texts
from .proxies import actual

if TYPE_CHECKING:
    from flask import Flask, Request

_IDS = ("user_id", "id", "uid", "sub", "username", "email", "client_id")
"""Where an object or a mapping that stands for a user has its id, in order."""

ACCOUNTS = ("account_id", "tenant_id", "tenant", "organization_id", "org_id")
"""Names in a session or in claims that choose an account; they count besides any user."""

_ISSUERS = ("iss", "provider", "tid", *ACCOUNTS)
"""Names in claims and other mappings within which alone an id names one user."""

LEFT_BY_LIBRARIES = frozenset(
    {"_jwt_extended_jwt", "flask_httpauth_user", "authlib_server_oauth2_token"}
)
"""Names in `flask.g` under which login libraries leave a user."""


def users_of(app: Flask, request: Request) -> list[str]:
    """Return the users that login libraries have found; empty where none has found any.

    Only Flask-Login loads a user here, from its own signed cookies. Libraries that would check
    credentials are read, and never called.
    """
    found = flask_login_user(app, request)
    known = actual(g)
    if claims := known.get("_jwt_extended_jwt"):
        subject = claims.get(app.config.get("JWT_IDENTITY_CLAIM", "sub"))
        found += [f"{user}{_within(claims)}" for user in _user("flask_jwt_extended", subject)]
    found += _user("flask_httpauth", known.get("flask_httpauth_user"))
    found += _user("authlib", known.get("authlib_server_oauth2_token"))
    return found


def flask_login_user(app: Flask, _: Request) -> list[str]:
    """Return the user of Flask-Login, the same at every URL of an application."""
    manager = getattr(app, "login_manager", None)
    if manager is None or "flask_login" not in sys.modules:
        return []
    if not any(getattr(manager, f"_{kind}_callback", True) for kind in ("user", "request")):
        return []  # it has no way to load a user, and would raise
    from flask_login import current_user  # noqa: PLC0415 - only where it is set up

    user: Any = current_user
    return _user("flask_login", user.get_id()) if user.is_authenticated else []


def user_of_server(request: Request) -> list[str]:
    """Return the user that the server has found, which a whole site may share."""
    user = request.environ.get("REMOTE_USER")
    return [] if _is_nobody(user) else [f"user:remote_user={user}"]


def accounts_of_session(session: Mapping[str, object]) -> list[str]:
    """Return names and values of the accounts that a session chooses, alternately."""
    return [
        text
        for name in ACCOUNTS
        if (account := id_of(session.get(name))) is not None
        for text in (f"session {name}", account)
    ]


def loaded_identity(loaded: object) -> str | None:
    """Return the identity for the result of an `identity_loader`; None for a guest.

    Raises:
        ConfigurationError: it is an object without an id.
    """
    if _is_nobody(loaded) or getattr(loaded, "is_authenticated", None) is False:
        return None
    if (scalar := _scalar(loaded)) is not None:
        return f"loader:{scalar}"
    if (found := id_of(loaded)) is not None:
        return f"loader{found}"
    raise ConfigurationError(
        f"The identity_loader returned a {type(loaded).__name__}, whose text may be the same for "
        "several users, or differ between requests. Return the user's id."
    )


def is_certain(sender: str) -> bool:
    """Whether a sender is one user, and not a trait that several may share, such as a role."""
    # A mapping without an id is written as JSON. An id may end so by chance: more counts.
    return not (sender.startswith(("user:", "session:")) and sender.endswith("}"))


def id_of(user: object) -> str | None:
    """Return the id of a user, such as `=7` or `.id=7`; None where there is none.

    The text of an object is never used: it may be a name that others have, too, or differ from
    request to request.
    """
    if _is_nobody(user):
        return None
    if (scalar := _scalar(user)) is not None:
        return f"={scalar}"
    if isinstance(user, Mapping):
        found = _first_id(user.get)
        return f".{found}{_within(user)}" if found else _as_json(dict(user))
    if isinstance(user, list | tuple):
        return _as_json(user)
    found = _first_id(partial(_attribute, user))
    return f".{type(user).__name__}.{found}" if found else None


def _user(library: str, user: object) -> list[str]:
    text = id_of(user)
    return [] if text is None else [f"user:{library}{text}"]


def _first_id(get: Callable[[str], object]) -> str | None:
    found = ((name, _scalar(get(name))) for name in _IDS)
    return next((f"{name}={scalar}" for name, scalar in found if scalar is not None), None)


def _within(user: Mapping[str, object]) -> str:
    """Return a text for the issuer and the account of an id; empty where there is none."""
    found = ((name, _scalar(user.get(name))) for name in _ISSUERS)
    texts = [text for name, scalar in found if scalar is not None for text in (name, scalar)]
    return f" {canonical_texts(*texts).decode('ascii')}" if texts else ""


def _attribute(user: object, name: str) -> object:
    try:
        return getattr(user, name, None)
    except Exception:  # noqa: BLE001 - the application's, such as a row without its session
        return None


def _as_json(value: object) -> str | None:
    try:
        return canonical(value).decode("ascii")
    except (TypeError, ValueError, RecursionError):
        return None


def _is_nobody(value: object) -> bool:
    """Whether a value stands for no user: None, a boolean, and everything empty but 0."""
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, str | bytes):
        return not value.strip()
    return not value and not isinstance(value, int | float)


def _scalar(value: object) -> str | None:
    if _is_nobody(value):
        return None
    if isinstance(value, str | int | float | UUID):
        return str(value)
    return value.hex() if isinstance(value, bytes) else None
