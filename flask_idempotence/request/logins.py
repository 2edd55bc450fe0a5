"""Users that a login library has found before the view, and ids in what stands for a user."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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

ACCOUNTS = (
    "account_id",
    "tenant_id",
    "tenant",
    "organization_id",
    "org_id",
)
"""Names in a session or in claims that choose an account; they count whoever asks."""

_ISSUERS = ("iss", "provider", "tid", *ACCOUNTS)
"""Names in claims and other mappings within which alone an id names one user."""


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
    del request
    found = _of_flask_login(app)
    known = actual(g)
    if claims := known.get("_jwt_extended_jwt"):
        subject = _named(
            "flask_jwt_extended", claims.get(app.config.get("JWT_IDENTITY_CLAIM", "sub"))
        )
        found += [f"{each}{_within(claims)}" for each in subject]
    for library, attribute in (
        ("flask_httpauth", "flask_httpauth_user"),
        ("authlib", "authlib_server_oauth2_token"),
    ):
        found += _named(library, known.get(attribute))
    return found


def user_of_server(request: Request) -> list[str]:
    """Return the user that the server has found, who may be one for a whole site."""
    user = request.environ.get("REMOTE_USER")
    return [] if is_nobody(user) else [f"user:remote_user={user}"]


def account_of_session(session: Mapping[str, Any]) -> list[str]:
    """Return names and values of the accounts that a session chooses, alternately."""
    return [
        text
        for name in ACCOUNTS
        if (account := id_of(session.get(name))) is not None
        for text in (f"session {name}", account)
    ]


def loaded_identity(loaded: Any) -> str | None:
    """Return the identity for the result of an `identity_loader`; None for nobody.

    Raises:
        ConfigurationError: it is an object without an id.
    """
    if is_nobody(loaded) or getattr(loaded, "is_authenticated", None) is False:
        return None
    if (plain := _plain(loaded)) is not None:
        return f"loader:{plain}"
    found = id_of(loaded)
    if found is None:
        raise ConfigurationError(
            f"The identity_loader returned a {type(loaded).__name__}, whose text may be that of "
            "others, too, or differ from request to request. Return the user's id."
        )
    return f"loader{found}"


def is_certain(sender: str) -> bool:
    """Whether a sender is one user, and not what several may have in common, such as a role."""
    # A mapping without an id is written as JSON. An id may end so by chance: more counts.
    return not (sender.startswith(("user:", "session:")) and sender.endswith("}"))


def flask_login_user(app: Flask, request: Request) -> list[str]:
    """Return the user of Flask-Login, who is the same at every URL of an application."""
    del request
    return _of_flask_login(app)


def _of_flask_login(app: Flask) -> list[str]:
    manager = getattr(app, "login_manager", None)
    if manager is None or "flask_login" not in sys.modules:
        return []
    if not (
        getattr(manager, "_user_callback", True) or getattr(manager, "_request_callback", True)
    ):
        return []  # it has no way to load a user, and would raise
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
            return f".{name}={plain}{_within(user)}"
    return _as_json(dict(user))


def _within(user: Mapping[Any, Any]) -> str:
    """Return a text for the issuer and the account of an id; empty where there is none."""
    found = [
        text
        for name in _ISSUERS
        if not is_nobody(value := user.get(name)) and (plain := _plain(value)) is not None
        for text in (name, plain)
    ]
    return f" {canonical_texts(*found).decode('ascii')}" if found else ""


def _as_json(value: Any) -> str | None:
    try:
        return canonical(value).decode("ascii")
    except (TypeError, ValueError, RecursionError):
        return None


def _plain(value: Any) -> str | None:
    if isinstance(value, str | int | float | UUID):
        return str(value)
    return value.hex() if isinstance(value, bytes) else None
