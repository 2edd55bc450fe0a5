"""Users found by a login library before the view, and the ids of user objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from flask import Flask, Request, g

from ..errors import ConfigurationError
from .body import OBSERVED
from .fingerprint import canonical_json
from .proxies import actual, session_with_content

_IDS = ("user_id", "id", "uid", "sub", "username", "email", "client_id")
"""Where an object or a mapping that stands for a user has its id, in order."""

ACCOUNTS = ("account_id", "tenant_id", "tenant", "organization_id", "org_id")
"""Names in a session or in claims that choose an account; they count besides any user."""

_ISSUERS = ("iss", "provider", "tid", *ACCOUNTS)
"""Names in claims and other mappings within which alone an id names one user."""

_TEXTS: dict[type, Callable[[Any], str]] = {
    str: str.__str__,
    int: int.__repr__,
    float: float.__repr__,
    UUID: UUID.__str__,
    bytes: bytes.hex,
}
"""Functions that return the whole of a value: a subclass's own may mask it."""

_LEFT_AS_USER = {
    "flask_httpauth": "flask_httpauth_user",
    "authlib": "authlib_server_oauth2_token",
}
LEFT_BY_LIBRARIES = frozenset({"_jwt_extended_jwt", *_LEFT_AS_USER.values()})
"""Names in `flask.g` under which login libraries leave a user."""


class Sender(NamedTuple):
    """A sender that a source has found.

    Attributes:
        text: says which sender it is; no other source makes the same text.
        is_certain: whether it is one user, and not a trait that several may share, such as a role.
    """

    source: str
    text: str
    is_certain: bool = True

    def __repr__(self) -> str:
        return f"<Sender {self.source}>"

    @classmethod
    def of_id(cls, source: str, label: str, id_: str) -> Sender:
        # So begins the text of a mapping without an id, with and without an issuer.
        return cls(source, f"{source}:{label}{id_}", not id_.startswith(("{", '@["{')))


def users_of(app: Flask, request: Request) -> list[Sender]:
    """Return the users that login libraries have found; empty where none has found any.

    Only Flask-Login loads a user here, from its own signed cookies. Libraries that would check
    credentials are read, and never called.
    """
    found, known = flask_login_user(app, request), actual(g)
    if claims := known.get("_jwt_extended_jwt"):
        subject = claims.get(app.config.get("JWT_IDENTITY_CLAIM", "sub"))
        if (user := id_of(subject)) is not None:
            found.append(Sender.of_id("user", "flask_jwt_extended", _within(user, claims)))
    for library, name in _LEFT_AS_USER.items():
        if (user := id_of(known.get(name))) is not None:
            found.append(Sender.of_id("user", library, user))
    return found


def flask_login_user(app: Flask, request: Request) -> list[Sender]:
    """Return the user of Flask-Login, the same at every URL of an application."""
    manager = getattr(app, "login_manager", None)
    if manager is None or "flask_login" not in sys.modules:
        return []
    if not any(getattr(manager, f"_{kind}_callback", True) for kind in ("user", "request")):
        return []  # it has no way to load a user, and would raise
    if OBSERVED in request.environ and "_login_user" not in actual(g):
        # Loading could sign the user in or out: the id in the session is the same one.
        session = session_with_content()
        found = None if session is None else id_of(session.get("_user_id"))
    else:
        from flask_login import current_user  # noqa: PLC0415 - only where it is set up

        user: Any = current_user
        found = id_of(user.get_id()) if user.is_authenticated else None
    return [] if found is None else [Sender.of_id("user", "flask_login", found)]


def loaded_sender(loaded: object) -> Sender | None:
    """Return the sender for the result of an `identity_loader`; None for a guest."""
    if _is_nobody(loaded) or getattr(loaded, "is_authenticated", None) is False:
        return None
    scalar = _scalar(loaded)
    if (found := f":{scalar}" if scalar is not None else id_of(loaded)) is not None:
        return Sender("loader", f"loader{found}")
    raise ConfigurationError(
        f"The identity_loader returned a {type(loaded).__name__}, whose text may be the same for "
        "several users, or differ between requests. Return the user's id."
    )


def id_of(user: object) -> str | None:
    """Return the id of a user, such as `=7` or `.id=7`; None where there is none.

    The first character says which form it has: `=`, `.`, `@`, or JSON's `{` and `[`.

    The text of an object is never used: it may be a name that others have, too, or differ from
    request to request.
    """
    if _is_nobody(user):
        return None
    if (scalar := _scalar(user)) is not None:
        return f"={scalar}"
    if isinstance(user, list | tuple):
        return _as_json(user)
    get = user.get if isinstance(user, Mapping) else partial(_attribute, user)
    scalars = ((name, _scalar(get(name))) for name in _IDS)
    found = next((f"{name}={scalar}" for name, scalar in scalars if scalar is not None), None)
    if isinstance(user, Mapping):
        return _within(f".{found}", user) if found else _as_json(dict(user))
    return found and f".{type(user).__name__}.{found}"


def _within(user: str, claims: Mapping[str, object]) -> str:
    """Return the text of an id with its issuer and account, as JSON; the id's for neither."""
    named = ((name, claims.get(name)) for name in _ISSUERS)
    found = ((name, _scalar(value) or id_of(value)) for name, value in named)
    texts = [text for name, issuer in found if issuer is not None for text in (name, issuer)]
    return f"@{canonical_json([user, *texts])}" if texts else user


def _attribute(user: object, name: str) -> object:
    with suppress(Exception):  # the application's, such as a row without its session
        return getattr(user, name, None)
    return None


def _as_json(value: object) -> str | None:
    with suppress(TypeError, ValueError, RecursionError):
        return canonical_json(value)
    return None


def _is_nobody(value: object) -> bool:
    """Whether a value stands for no user: None, a boolean, and everything empty but 0."""
    if isinstance(value, str | bytes):
        return not value.strip()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is True or not (value or is_number)


def _scalar(value: object) -> str | None:
    if _is_nobody(value):
        return None
    return next((text(value) for kind, text in _TEXTS.items() if isinstance(value, kind)), None)
