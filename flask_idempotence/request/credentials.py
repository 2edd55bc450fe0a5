"""Headers and cookies that carry credentials or choose an account.

Of the `Authorization` header, the part that is the same in every attempt counts.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterable, Mapping

from flask import Request
from werkzeug.datastructures import MultiDict
from werkzeug.http import unquote_header_value

from ..config.settings import Config
from .fingerprint import canonical_json
from .key_header import environ_key
from .proxies import session_with_content
from .senders import Asked, Sender, user_in_session

# Names of tokens against forged requests: each visitor has one, and it may change any time.
FORGERY = re.compile(r"csrf|xsrf", re.IGNORECASE)

# Cookies of firewalls, analytics and consent tools whose names look like credentials. They are
# renewed between two requests of one client.
RENEWED = frozenset({"amp_token", "aws-waf-token", "didomi_token"})

_CREDENTIAL = re.compile(r"key|token|auth|secret|session|jwt|credential|passw", re.IGNORECASE)
_HARMLESS = re.compile(r"idempot|^sec-", re.IGNORECASE)
_PREFIX = re.compile(r"__(?:Host|Secure)-")

# Schemes whose credentials are sent again as they are.
_STABLE = frozenset(
    {
        *("api-key", "apikey", "basic", "bearer", "client-id", "dpop", "jwt", "key"),
        *("private-token", "privatetoken", "ssws", "token", "x-api-key"),
    }
)

# Schemes that sign each request: the parameters that name the sender, and those besides.
_SIGNED = {
    "digest": (("username", "username*"), ("realm",)),
    "hawk": (("id",), ("app",)),
    "mac": (("id",), ()),
    "oauth": (("oauth_consumer_key",), ("oauth_token",)),
    "signature": (("keyid",), ()),
}

# Schemes of the form `name:signature`.
_WITH_COLON = frozenset({"aws", "sharedkey", "sharedkeylite"})

_NAME = re.compile(r"[a-z][a-z0-9-]{1,30}")
_SCOPE = re.compile(r"/\d{8}/")
_SIGNATURE_METHOD = re.compile(r"hmac|ecdsa|rsa")
_LONGEST_LIST = 8192


class Credentials:
    """Finds the headers and cookies that distinguish senders.

    A header whose name says that it holds a credential (`key`, `token`, `auth` and the like)
    counts for guests. Every other listed header chooses an account, and counts
    besides any user.

    Attributes:
        accounts: names of the headers that choose an account, by their keys in the environment.
    """

    def __init__(self, config: Config) -> None:
        self._secret: dict[str, str] = {}
        self.accounts: dict[str, str] = {}
        for header in config.identity_headers:
            kind = self._secret if _CREDENTIAL.search(header) else self.accounts
            kind[environ_key(header)] = header.lower()
        self._session_keys = config.identity_session_keys
        self._cookies = _matcher(config.identity_cookies)
        self._renewed = RENEWED.difference(map(str.lower, config.identity_cookies))

    def of(self, asked: Asked) -> list[Sender]:
        request, headers, config = asked.request, self._secret, asked.app.config
        # Where Flask-JWT-Extended looks for its tokens is a setting of its own.
        own = config.get("JWT_HEADER_NAME")
        if own and own.lower() != "authorization":
            headers = {**headers, environ_key(own): own.lower()}
        found = present(request, headers)
        if "HTTP_COOKIE" in request.environ:
            found += self._of_cookies(request.cookies, config)
            # Of a guest known by its key, the session may begin between two attempts.
            if not asked.is_known_by_key() or self._has_user_in_session():
                found += _session_id(request, config)
        return [Sender("credentials", f"credentials:{canonical_json(found)}")] if found else []

    def _of_cookies(self, cookies: MultiDict[str, str], config: Mapping[str, object]) -> list[str]:
        found: list[str] = []
        own, of_session = config.get("JWT_ACCESS_COOKIE_NAME"), config.get("SESSION_COOKIE_NAME")
        for name, value in sorted(cookies.items(multi=True)):
            plain = plain_cookie(name)
            is_renewed = plain in self._renewed or FORGERY.search(name)
            counts = name == own or (self._cookies.match(plain) and not is_renewed)
            # The content of the session's changes from response to response.
            if value and name != of_session and counts:
                found += [f"cookie {name}", value]
        return found

    def _has_user_in_session(self) -> bool:
        if (session := session_with_content()) is None:
            return False
        return any(user_in_session(name, session.get(name)) for name in self._session_keys)


def _session_id(request: Request, config: Mapping[str, object]) -> list[str]:
    """Return the id of a session that the server keeps."""
    is_sent = config.get("SESSION_COOKIE_NAME") in request.cookies
    sid = getattr(session_with_content(), "sid", None) if is_sent else None
    return ["session id", sid] if sid and isinstance(sid, str) else []


def present(request: Request, headers: Mapping[str, str]) -> list[str]:
    """Return names and values of those headers that a request has, alternately."""
    environ, found = request.environ, []
    for key, name in () if headers.keys().isdisjoint(environ) else headers.items():
        if value := environ.get(key, "").strip():
            found += [f"header {name}", value]
    return found


def plain_cookie(name: str) -> str:
    return _PREFIX.sub("", name).lower()


def _matcher(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(name.lower()) for name in names) or r"(?!)")


def header_name(key: str) -> str:
    return key[5:].replace("_", "-").lower()


def carried_headers(request: Request) -> dict[str, str]:
    """Return the headers, besides `Authorization`, whose names are those of credentials."""
    environ = request.environ
    return {name: environ[key] for key in sorted(environ) if (name := _credential_in(key))}


@functools.lru_cache(maxsize=1024)
def _credential_in(key: str) -> str:
    """Return the name of a header that carries a credential, by its key in the environment."""
    name = header_name(key) if key.startswith("HTTP_") else ""
    is_one = name != "authorization" and _CREDENTIAL.search(name)
    return name if is_one and not FORGERY.search(name) and not _HARMLESS.search(name) else ""


def read_authorization(header: str) -> tuple[str, str]:
    """Return the part of a header that counts, empty where there are no credentials.

    Credentials that sign each request count by the part that names the sender. All others count
    as a whole, well-formed or not: of those that may differ in the next attempt, the second value
    is the scheme, or `"unknown"` where it may not be logged.
    """
    whole = header.strip()
    scheme, _, credentials = whole.partition(" ")
    scheme, credentials = scheme.lower(), credentials.strip()
    if scheme in _STABLE:
        return credentials and f"authorization:{scheme} {credentials}", ""
    if not credentials:
        return (f"authorization: {whole}", "unknown") if whole else ("", "")
    parameters = _parameters(credentials)
    if sender := _sender(scheme, credentials, parameters):
        return f"signed:{scheme} {canonical_json(sender)}", ""
    # A word before parameters is a scheme; one before anything else may be part of a secret.
    has_form = scheme in _SIGNED or (parameters and all(parameters.values()))
    is_scheme = has_form and _NAME.fullmatch(scheme)
    return f"authorization:{scheme} {credentials}", scheme if is_scheme else "unknown"


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
    for item in parse_http_list(text) if len(text) <= _LONGEST_LIST else ():
        name, is_one, value = item.partition("=")
        name = name.strip().lower()
        if not is_one or not name or " " in name or name in found:
            return {}  # no list of parameters, or one that can be read in two ways
        found[name] = unquote_header_value(value.strip())
    return found
