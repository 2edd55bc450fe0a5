"""Warnings about identities and misnamed headers, once an endpoint: names, and never a value."""

from __future__ import annotations

import functools
import logging
import re

from flask import Flask, Request

from ..config.settings import Config
from .credentials import FORGERY, environ_key, is_renewed
from .forms import form_of
from .logins import ACCOUNTS
from .proxies import session_with_content

_logger = logging.getLogger("flask_idempotence")

# `re` compiles these at their first use: most applications start without a need for them.
_SUSPICIOUS = (
    r"(?i)key|token|auth|secret|sess|jwt|credential|passw|login|user|account|tenant|client-?id|"
    r"cert|\bdn\b|principal|identity|oidc|e?mail|customer|merchant|consumer|member|remember|"
    r"subject|\borg\b|organi[sz]ation|workspace|\buid\b"
)
_HARMLESS = r"(?i)user-agent|idempot|\bsec-"
_OF_SESSION = (
    r"(?i)user|account|login|logged|member|customer|client|tenant|mail|auth|profile|token|identity|"
    r"openid|principal|subject|person|student|employee|patient|phone|nick|"
    r"^_?[a-z]?id$|^(?:github|google|facebook|microsoft)_id$|^(?:full_?)?name$"
)
_LONGEST_NAME = 64
_MOST_NAMES = 1000
_MOST_COMPARED = 100
"""A form may have a hundred thousand names, and each comparison takes a microsecond or two."""

_FORWARDED = {
    "HTTP_X_FORWARDED_FOR": "X-Forwarded-For",
    "HTTP_FORWARDED": "Forwarded",
    "HTTP_X_REAL_IP": "X-Real-IP",
}
_CREDENTIAL = (
    "Only addresses distinguish senders, and a request carries a possible credential: %s. If "
    "it identifies the sender, name it in IDEMPOTENCE_IDENTITY_%s, or register an "
    "identity_loader; else users behind one address count as one: endpoint=%s"
)
_SCHEME = (
    "The Authorization header of scheme %s counts as a whole: if it changes between "
    "attempts, a repeat is not recognised, and runs again. Register an identity_loader that "
    "returns the constant part: endpoint=%s"
)
_PROXY = (
    "Addresses distinguish guests, and requests come through a proxy (%s) that is not "
    "configured: all guests count as one. Wrap app.wsgi_app in werkzeug's ProxyFix, or set "
    "IDEMPOTENCE_IP_HEADER: endpoint=%s"
)
_NO_ADDRESS = (
    "Addresses distinguish guests, and the server passes none on, as behind a unix socket: "
    "all guests count as one. Have the proxy send X-Forwarded-For, and wrap app.wsgi_app in "
    "werkzeug's ProxyFix: endpoint=%s"
)
_NEAR_MISS = (
    "Flask-Idempotence: a request has the %s %r, and %r is expected. Rename it in the client, or "
    "here (%s): endpoint=%s"
)
_EMPTY = (
    "Flask-Idempotence: a request has the %s %r, and it is empty. A field that is rendered "
    "empty is filled by the script, which has not run or has got no token: endpoint=%s"
)


class _Once:
    """Logs each warning once an endpoint."""

    def __init__(self) -> None:
        self._given: set[tuple[str, str | None]] = set()

    def _is_new(self, about: str, endpoint: str | None) -> bool:
        return (about, endpoint) not in self._given

    def _warn(self, about: str, endpoint: str | None, text: str, *arguments: object) -> None:
        if self._is_new(about, endpoint):
            self._given.add((about, endpoint))
            _logger.warning(text, *arguments, endpoint)


class IdentityWarnings(_Once):
    """Warns where senders may be confused, or a repeat not be recognised."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        # Names in environments so far that say nothing of the sender.
        self.meaningless: set[str] = set()
        self._checks_address = "ip" in config.identity and config.ip_header is None
        listed = config.identity_headers if "credentials" in config.identity else ()
        self._counted = {n.lower() for n in (config.key_header, config.token_header, *listed)}
        forwarded = _FORWARDED if self._checks_address else ()
        own = {"HTTP_AUTHORIZATION", "HTTP_COOKIE", "REMOTE_USER"}
        self._telling = {*own, *map(environ_key, listed), *forwarded}

    def about_scheme(self, request: Request, scheme: str) -> None:
        self._warn("scheme", request.endpoint, _SCHEME, scheme)

    def about_guest(self, app: Flask, request: Request, key_header: str | None) -> None:
        """Check a request whose sender is known by an address only.

        The header that an idempotency key came in is no credential.
        """
        endpoint, environ, headers = request.endpoint, request.environ, self._look_at(request)
        if self._is_new("credential", endpoint):
            own = {*self._counted, (key_header or "").lower()}
            header = next((name for name in headers if name not in own), None)
            found = (f"the header {header}", "HEADERS") if header else _credential_of(app, request)
            if found:
                self._warn("credential", endpoint, _CREDENTIAL, *found)
        if self._checks_address and self._is_new("address", endpoint):
            for key, name in _FORWARDED.items():
                value = environ.get(key)
                # A middleware of another kind may have put the forwarded address in its place.
                if value and request.remote_addr not in re.split(r'[],;="[\s]+', value):
                    self._warn("address", endpoint, _PROXY, name)
            if not request.remote_addr:
                self._warn("address", endpoint, _NO_ADDRESS)

    def _look_at(self, request: Request) -> list[str]:
        environ = request.environ
        if "werkzeug.proxy_fix.orig" in environ:  # a proxy is configured: the address is right
            self._checks_address, self._telling = False, self._telling - _FORWARDED.keys()
        if len(self.meaningless) > _MOST_NAMES:
            self.meaningless.clear()
        found = []
        for key in environ.keys() - self.meaningless:
            name = key[5:].replace("_", "-").lower()[:_LONGEST_NAME] if key[:5] == "HTTP_" else ""
            if not _is_suspicious(name):
                if key not in self._telling:
                    self.meaningless.add(key)
            elif environ[key]:
                found.append(name)
        return found


def _credential_of(app: Flask, request: Request) -> tuple[str, str] | None:
    if "HTTP_COOKIE" not in request.environ:
        return None
    of_session = app.config.get("SESSION_COOKIE_NAME")
    for name in request.cookies:
        if name != of_session and _is_suspicious(name) and not is_renewed(name):
            return f"the cookie {_shown(name)}", "COOKIES"
    for name in session_with_content() or ():
        is_counted = not isinstance(name, str) or name in ACCOUNTS or FORGERY.search(name)
        if not is_counted and re.search(_OF_SESSION, name):
            return f"{_shown(name)} in the session", "SESSION_KEYS"
    return None


@functools.lru_cache(maxsize=1024)
def _is_suspicious(name: str) -> bool:
    short = name[:_LONGEST_NAME]
    is_harmless = FORGERY.search(short) or re.search(_HARMLESS, short)
    return not is_harmless and re.search(_SUSPICIOUS, short) is not None


def _shown(name: str) -> str:
    return ascii(name[:_LONGEST_NAME])[1:-1]


class NearMisses(_Once):
    """Warns of headers and form fields whose names are close to the expected one."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._header, self._field = config.token_header, config.token_field
        self._ours = {config.key_header.lower(), config.token_header.lower()}

    def look_for_key(self, endpoint: str | None, request: Request, header: str) -> None:
        self._look(endpoint, request, header, "IDEMPOTENCE_KEY_HEADER, or key= of the route")

    def look_for_token(self, endpoint: str | None, request: Request) -> None:
        self._look(endpoint, request, self._header, "IDEMPOTENCE_TOKEN_HEADER")
        self._look(endpoint, request, self._field, "IDEMPOTENCE_TOKEN_FIELD", kind="form field")

    def _look(
        self, at: str | None, request: Request, expected: str, remedy: str, kind: str = "header"
    ) -> None:
        if not self._is_new(expected, at):
            return
        names = [name for name, _ in request.headers if name.lower() not in self._ours]
        if kind == "form field":
            names = list(form.fields) if (form := form_of(request)) else []
        for name in names[:_MOST_COMPARED]:
            # A part of a form may have no name.
            if name and len(name) <= _LONGEST_NAME and _is_near(name, expected):
                if name == expected:
                    self._warn(expected, at, _EMPTY, kind, name)
                else:
                    self._warn(expected, at, _NEAR_MISS, kind, name, expected, remedy)
                return


def _is_near(sent: str, wanted: str) -> bool:
    sent, wanted = (re.sub(r"^x-|[^a-z0-9]", "", name.lower()) for name in (sent, wanted))
    return sent == wanted or ("idempot" in sent and "idempot" in wanted)
