"""The `Authorization` header: the part of it that is the same in every attempt."""

from __future__ import annotations

import re
from typing import NamedTuple

from werkzeug.http import unquote_header_value

from .fingerprint import canonical_json

_STABLE = frozenset(
    {
        *("api-key", "apikey", "basic", "bearer", "client-id", "dpop", "jwt", "key"),
        *("private-token", "privatetoken", "ssws", "token", "x-api-key"),
    }
)
"""Schemes whose credentials are sent again as they are."""

_SIGNED = {
    "digest": (("username", "username*"), ("realm",)),
    "hawk": (("id",), ("app",)),
    "mac": (("id",), ()),
    "oauth": (("oauth_consumer_key",), ("oauth_token",)),
    "signature": (("keyid",), ()),
}
"""Schemes that sign each request: the parameters that name the sender, and those besides."""

_WITH_COLON = frozenset({"aws", "sharedkey", "sharedkeylite"})
"""Schemes of the form `name:signature`."""

_NAME = re.compile(r"[a-z][a-z0-9-]{1,30}")
_SCOPE = re.compile(r"/\d{8}/")
_SIGNATURE_METHOD = re.compile(r"hmac|ecdsa|rsa")
_LONGEST = 8192


class Authorization(NamedTuple):
    """The part of an `Authorization` header that counts."""

    text: str
    is_stable: bool
    """Whether it is known to be the same in the next attempt."""
    scheme: str = ""
    """The scheme, if it may be logged."""

    def __repr__(self) -> str:
        return "<Authorization>"


def read_authorization(header: str) -> Authorization | None:
    """Return the part of a header that counts; None where it is empty.

    Credentials that sign each request count by the part that names the sender. All
    others count as a whole, well-formed or not.
    """
    whole = header.strip()
    scheme, _, credentials = whole.partition(" ")
    scheme, credentials = scheme.lower(), credentials.strip()
    if not whole or (not credentials and scheme in _STABLE):
        return None
    if not credentials:
        return Authorization(f"authorization: {whole}", is_stable=False)
    text = f"authorization:{scheme} {credentials}"
    if scheme in _STABLE:
        return Authorization(text, is_stable=True)
    parameters = _parameters(credentials) if len(credentials) <= _LONGEST else {}
    if sender := _sender(scheme, credentials, parameters):
        named = canonical_json(sender)
        return Authorization(f"signed:{scheme} {named}", is_stable=True)
    # A word before parameters is a scheme; one before anything else may be part of a secret.
    has_form = bool(parameters) and all(parameters.values())
    is_scheme = _NAME.fullmatch(scheme) and (has_form or scheme in _SIGNED)
    return Authorization(text, is_stable=False, scheme=scheme if is_scheme else "")


def _sender(scheme: str, credentials: str, parameters: dict[str, str]) -> list[str]:
    if scheme in _WITH_COLON:
        name, colon, _ = credentials.partition(":")
        return [name] if name and colon else []
    if scheme in _SIGNED:
        names, more = _SIGNED[scheme]
        is_named = any(parameters.get(name) for name in names)
        return [parameters.get(name, "") for name in (*names, *more)] if is_named else []
    credential = parameters.get("credential", "")
    if not credential or not _SIGNATURE_METHOD.search(scheme):
        return []
    return [_SCOPE.split(credential, maxsplit=1)[0]]  # the scope behind the id has the day in it


def _parameters(text: str) -> dict[str, str]:
    from urllib.request import parse_http_list  # noqa: PLC0415 - heavy, and for few schemes

    found: dict[str, str] = {}
    for item in parse_http_list(text):
        name, is_one, value = item.partition("=")
        name = name.strip().lower()
        if not is_one or not name or " " in name or name in found:
            return {}  # no list of parameters, or one that can be read in two ways
        found[name] = unquote_header_value(value.strip())
    return found
