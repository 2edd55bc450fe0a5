"""Warnings about identities, once an endpoint: a name is logged, and never a value."""

from __future__ import annotations

import functools
import logging
import re
from typing import TYPE_CHECKING

from .credentials import FORGERY, environ_key
from .logins import ACCOUNTS
from .proxies import session_with_content

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment
    from flask import Flask, Request

    from ..config.settings import Config

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

_FORWARDED = {
    "HTTP_X_FORWARDED_FOR": "X-Forwarded-For",
    "HTTP_FORWARDED": "Forwarded",
    "HTTP_X_REAL_IP": "X-Real-IP",
}
_SEPARATORS = r'[],;="[\s]+'

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


class IdentityWarnings:
    """Warns where senders may be confused, or a repeat not be recognised."""

    def __init__(self, config: Config) -> None:
        self._given: set[tuple[str, str | None]] = set()
        self.meaningless: set[str] = set()
        """Names in environments that say nothing about the sender, as far as they were seen."""
        self._checks_address = "ip" in config.identity and config.ip_header is None
        listed = config.identity_headers if "credentials" in config.identity else ()
        counted = {config.key_header, config.token_header, *listed}
        self._counted = frozenset(name.lower() for name in counted)
        self._telling = {"HTTP_COOKIE", "REMOTE_USER", *map(environ_key, listed)}
        if self._checks_address:
            self._telling.update(_FORWARDED)

    def learn(self, environ: WSGIEnvironment) -> None:
        """Note the names in an environment that say nothing about the sender."""
        if len(self.meaningless) > _MOST_NAMES:
            self.meaningless.clear()
        for key in environ.keys() - self.meaningless:
            if key in _FORWARDED and "werkzeug.proxy_fix.orig" in environ:
                is_telling = False  # the address is right
            else:
                is_telling = key in self._telling or _is_suspicious(_header_name(key))
            if not is_telling:
                self.meaningless.add(key)

    def about_guest(self, app: Flask, request: Request, key_header: str | None) -> None:
        """Check a request whose sender is known by an address only.

        The header that an idempotency key came in is no credential.
        """
        endpoint = request.endpoint
        if (_CREDENTIAL, endpoint) not in self._given:
            place = self._possible_credential(app, request, key_header)
            if place is not None:
                self._warn(_CREDENTIAL, *place, endpoint=endpoint)
        address = (_PROXY, endpoint), (_NO_ADDRESS, endpoint)
        if self._checks_address and self._given.isdisjoint(address):
            self._check_address(request)

    def about_scheme(self, request: Request, scheme: str) -> None:
        """Warn that a repeat may not be recognised by credentials of an unknown scheme."""
        if (_SCHEME, request.endpoint) not in self._given:
            self._warn(_SCHEME, scheme or "unknown", endpoint=request.endpoint)

    def _warn(self, text: str, *arguments: str, endpoint: str | None) -> None:
        self._given.add((text, endpoint))
        _logger.warning(text, *arguments, endpoint)

    def _check_address(self, request: Request) -> None:
        environ, endpoint = request.environ, request.endpoint
        if "werkzeug.proxy_fix.orig" in environ:
            return
        for key, name in _FORWARDED.items():
            value = environ.get(key)
            # A middleware of another kind may have put the forwarded address in its place.
            if value and request.remote_addr not in re.split(_SEPARATORS, value):
                self._warn(_PROXY, name, endpoint=endpoint)
                return
        if not request.remote_addr:
            self._warn(_NO_ADDRESS, endpoint=endpoint)

    def _possible_credential(
        self, app: Flask, request: Request, key_header: str | None
    ) -> tuple[str, str] | None:
        if (header := self._possible_header(request.environ, key_header)) is not None:
            return f"the header {header}", "HEADERS"
        if "HTTP_COOKIE" in request.environ:
            of_session = app.config.get("SESSION_COOKIE_NAME")
            for name in request.cookies:
                if name != of_session and _is_suspicious(name):
                    return f"the cookie {_shown(name)}", "COOKIES"
            for name in session_with_content() or ():
                if isinstance(name, str) and _is_of_user(name):
                    return f"{_shown(name)} in the session", "SESSION_KEYS"
        return None

    def _possible_header(self, environ: WSGIEnvironment, key_header: str | None) -> str | None:
        for key in environ.keys() - self.meaningless:
            name = _header_name(key)
            if _is_suspicious(name):
                is_ours = name in self._counted or name == (key_header or "").lower()
                if not is_ours and environ[key]:
                    return name
        return None


@functools.lru_cache(maxsize=1024)
def _is_suspicious(name: str) -> bool:
    short = name[:_LONGEST_NAME]
    is_harmless = FORGERY.search(short) or re.search(_HARMLESS, short)
    return not is_harmless and re.search(_SUSPICIOUS, short) is not None


def _is_of_user(name: str) -> bool:
    is_account = name in ACCOUNTS  # which counts already
    return not is_account and bool(re.search(_OF_SESSION, name)) and not FORGERY.search(name)


@functools.lru_cache(maxsize=1024)
def _header_name(key: str) -> str:
    """Return the name of a header; empty for other entries of an environment."""
    return key[5:].replace("_", "-").lower()[:_LONGEST_NAME] if key.startswith("HTTP_") else ""


def _shown(name: str) -> str:
    return ascii(name[:_LONGEST_NAME])[1:-1]
