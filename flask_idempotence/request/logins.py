"""Users that login libraries have found before the view.

Only Flask-Login loads a user here, from its own signed cookies. Libraries that would check
credentials are read, and never called.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from flask import Flask, Request, g

from .body import OBSERVED
from .credentials import carried_headers, read_authorization
from .fingerprint import canonical_json
from .proxies import actual, session_with_content, unproxied
from .senders import Asked, Sender, id_of, qualified_by_issuer, text_of


def users_of(asked: Asked) -> list[Sender]:
    """Return all users that login libraries have found, such as a device and its cashier."""
    app, left, found = asked.app, actual(g), flask_login_user(asked)
    if "flask-jwt-extended" in app.extensions:
        found += _jwt_user(app)
    if (token := left.get("authlib_server_oauth2_token")) is not None:
        found += _authlib_user(token)
    user = left.get("flask_httpauth_user")
    if user is not None and not isinstance(user, bool):
        found += _httpauth_user(unproxied(user), asked.request)
    return found


def flask_login_user(asked: Asked) -> list[Sender]:
    """Return the user of Flask-Login, the same at every URL of an application."""
    if (manager := getattr(asked.app, "login_manager", None)) is None:
        return []
    library = sys.modules.get("flask_login")
    if library is None or not isinstance(manager, library.LoginManager):
        return []
    if not (manager.user_callback or manager.request_callback):
        return []  # it has no way to load a user, and would raise
    if asked.request.environ.get(OBSERVED) and "_login_user" not in actual(g):
        # Loading could sign the user in or out: the id in the session is the same one.
        session = session_with_content()
        found = None if session is None else text_of(session.get("_user_id"))
    else:
        # None, or any object, as the application makes guests.
        user: Any = actual(library.current_user)
        found = text_of(user.get_id()) if getattr(user, "is_authenticated", False) else None
    return [] if found is None else [Sender("user", f"user:flask_login{found}", id=found[1:])]


def _jwt_user(app: Flask) -> list[Sender]:
    from flask_jwt_extended import get_jwt  # noqa: PLC0415 - only where it is set up

    claims: Mapping[str, object] = {}
    with suppress(RuntimeError):  # no decorator has checked a token
        claims = get_jwt()
    subject = claims.get(app.config.get("JWT_IDENTITY_CLAIM", "sub"))
    if (found := text_of(subject)) is None:
        return []
    return [Sender("user", f"user:flask_jwt_extended{qualified_by_issuer(found, claims)}")]


def _authlib_user(token: object) -> list[Sender]:
    """Return the user and the client of an OAuth 2 token.

    A token's own id is another one with each token.
    """
    is_certain, issuers = True, ""
    if isinstance(token, Mapping):  # RFC 7662, section 2.2, and RFC 9068, section 2.2
        users = (text_of(token.get(name)) for name in ("sub", "username", "user_id"))
        user, client = next(filter(None, users), None), text_of(token.get("client_id"))
        issuers = qualified_by_issuer("", token)
    else:
        user, client = (text_of(getattr(token, name, None)) for name in ("user_id", "client_id"))
        is_certain = hasattr(token, "user_id")
    if not (user or client):
        return []
    return [Sender("user", f"user:authlib{canonical_json([user, client, issuers])}", is_certain)]


def _httpauth_user(user: object, request: Request) -> list[Sender]:
    """Return what a callback of Flask-HTTPAuth has returned, together with the scheme.

    Each scheme, and each header, may have a table of users of its own.
    """
    sent, headers = request.environ.get("HTTP_AUTHORIZATION", ""), carried_headers(request)
    if found := id_of(user) or _id_of_object(user):
        scheme, _, credentials = sent.strip().partition(" ")
        table = canonical_json([scheme.lower() if credentials else "", *headers])
        return [Sender("user", f"user:flask_httpauth{table}{found}")]
    # A mapping may hold anything, such as a balance.
    parts = [part for part in (read_authorization(sent)[0], *headers.items()) if part]
    return [Sender("user", f"user:flask_httpauth {canonical_json(parts)}")] if parts else []


def _id_of_object(user: object) -> str | None:
    """Return the class of an object and its id; None for a mapping, a row and a named tuple."""
    if isinstance(user, Mapping | Sequence):
        return None
    kind = type(user)
    with suppress(Exception):  # the application's, such as a row without its session
        get = getattr(user, "get_id", None)
        found = text_of(get()) if callable(get) else None
        if found := found or text_of(getattr(user, "id", None)):
            return f".{kind.__module__}.{kind.__qualname__}{found}"
    return None
