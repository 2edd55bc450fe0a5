"""Senders as texts, and the ids in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from flask import Flask, Request
from flask.sessions import SessionMixin

from ..errors import ConfigurationError
from .fingerprint import canonical_json
from .key_header import is_unguessable

# Names in a session or in claims that choose an account; they count besides any user.
ACCOUNTS = ("account_id", "tenant_id", "tenant", "organization_id", "org_id")

# Names in claims within which alone an id names one user.
_ISSUERS = ("iss", "provider", "tid", *ACCOUNTS)

# Functions that return the whole of an id, and a mark of its kind: a subclass may mask it.
_TEXTS: dict[type, Callable[[Any], str]] = {
    str: lambda value: f"={str.__str__(value)}",
    int: lambda value: f"#{int.__repr__(value)}",
    UUID: lambda value: f"={UUID.__str__(value)}",
    bytes: lambda value: f"%{bytes.hex(value)}",
}

_NO_ID = (
    "The identity_loader returned a value of type {}. Return a text, an integer, a UUID, bytes, "
    "or a tuple or list of these, as in `return current_user.get_id() if current_user else None` "
    "or `return str(row.id)`; for a guest, return None."
)


class Sender(NamedTuple):
    """A sender that a source has found.

    Attributes:
        text: says which sender it is; no other source makes the same text.
        is_certain: whether it is one user, and not a trait that several may share, such as a role.
        id: the id without the mark of its kind, if the session may hold it, too.
    """

    source: str
    text: str
    is_certain: bool = True
    id: str = ""

    def __repr__(self) -> str:
        return f"<Sender {self.source}>"


@dataclass(eq=False, slots=True)
class Asked:
    """A request whose sender is asked for.

    Attributes:
        key: an idempotency key, if the request has one.
        unguessable: whether the key alone identifies a guest; None: its form decides.
        found: the senders found so far.
        session: the session; None where it is empty, or the application has loaded the sender.
    """

    app: Flask
    request: Request
    key: str | None = None
    unguessable: bool | None = None
    found: list[Sender] = field(default_factory=list)
    session: SessionMixin | None = None

    def is_known_by_key(self) -> bool:
        if self.unguessable is None:
            return self.key is not None and is_unguessable(self.key)
        return self.unguessable


def id_of(value: object) -> str | None:
    """Return the text of an id, such as `=7` or, of a number, `#7`; None for any other value.

    Blank texts, booleans and proxies are no ids.
    """
    kind = type(value)
    if kind is bool or is_blank(value):
        return None
    return next((text(value) for each, text in _TEXTS.items() if issubclass(kind, each)), None)


def text_of(value: object) -> str | None:
    """Return the text of an id, or of any other value as a whole; None for an empty one."""
    return id_of(value) or whole_of(value)


def is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str | bytes) and not value.strip())


def loaded_sender(loaded: object) -> Sender | None:
    """Return the sender for the result of an `identity_loader`; None for a guest."""
    if type(loaded) not in (tuple, list):
        return None if is_blank(loaded) else Sender("loader", f"loader{_loaded_id(loaded)}")
    parts: list[Any] = list(loaded)  # type: ignore[call-overload]
    ids = [None if is_blank(part) else _loaded_id(part) for part in parts]
    if not any(ids):
        return None
    return Sender("loader", f"loader{canonical_json(ids)}", is_certain=None not in ids)


def _loaded_id(value: object) -> str:
    if (found := id_of(value)) is None:
        raise ConfigurationError(_NO_ID.format(type(value).__name__))
    return found


def user_in_session(label: str, value: object) -> Sender | None:
    """Return the user in a value of a session: an id, the claims of a user, or anything whole."""
    found, is_certain = id_of(value), True
    if found is None and isinstance(value, Mapping):
        # OpenID Connect Core 1.0, section 5.7: these two, and no other claims, name a user.
        subject = id_of(value.get("sub")) if id_of(value.get("iss")) else None
        found = subject and qualified_by_issuer(subject, value)
    if found is None:
        found, is_certain = whole_of(value), False
    if found is None:
        return None
    return Sender("session", f"session:{label}{found}", is_certain, id=found[1:])


def qualified_by_issuer(user: str, claims: Mapping[str, object]) -> str:
    """Return the text of an id with its issuer and account, as JSON; the id's for neither."""
    named = ((name, text_of(claims.get(name))) for name in _ISSUERS)
    texts = [text for name, issuer in named if issuer is not None for text in (name, issuer)]
    return f"@{canonical_json([user, *texts])}" if texts else user


def whole_of(value: object) -> str | None:
    """Return a value as JSON; None for an empty one, for booleans and for functions."""
    if isinstance(value, bool | str | bytes) or callable(value) or not value:
        return None
    try:
        return json.dumps(value, sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
