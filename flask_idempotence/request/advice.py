"""Warnings about identities, once an endpoint: a name is logged, and never a value."""

from __future__ import annotations

import functools
import logging
import re
from typing import TYPE_CHECKING

from .credentials import FORGERY
from .logins import ACCOUNTS
from .proxies import session_with_content

if TYPE_CHECKING:
    from flask import Flask, Request

    from ..config.settings import Config

_logger = logging.getLogger("flask_idempotence")

_SUSPICIOUS = re.compile(
    r"key|token|auth|secret|sess|jwt|credential|passw|login|user|account|tenant|client-?id|"
    r"cert|\bdn\b|principal|identity|oidc|e?mail|customer|merchant|consumer|member|remember|"
    r"subject|\borg\b|organi[sz]ation|workspace|\buid\b",
    re.IGNORECASE,
)
_HARMLESS = re.compile(r"user-agent|idempot|\bsec-", re.IGNORECASE)
_OF_SESSION = re.compile(
    r"user|account|login|logged|member|customer|client|tenant|mail|auth|profile|token|identity|"
    r"openid|principal|subject|person|student|employee|patient|phone|nick|"
    r"^_?[a-z]?id$|^(?:github|google|facebook|microsoft)_id$|^(?:full_?)?name$",
    re.IGNORECASE,
)
_LONGEST_NAME = 64
_MOST_NAMES = 1000

_FORWARDED = {
    "HTTP_X_FORWARDED_FOR": "X-Forwarded-For",
    "HTTP_FORWARDED": "Forwarded",
    "HTTP_X_REAL_IP": "X-Real-IP",
}
_SEPARATORS = re.compile(r'[],;="[\s]+')
_CREDENTIALS, _PROXY, _SCHEME = "credentials", "proxy", "scheme"


class Advice:
    """Says of each endpoint once that its senders may not be told apart as they should be.

    Args:
        config: the settings.
    """

    def __init__(self, config: Config) -> None:
        self._given: set[tuple[str, str | None]] = set()
        self._harmless: set[str] = set()  # names in environments, seen before
        self._address_counts = "ip" in config.identity
        self._ip_header = config.ip_header
        own = {config.key_header, config.token_header}
        listed = config.identity_headers if "credentials" in config.identity else ()
        self._counted = frozenset(name.lower() for name in own.union(listed))

    def about_guest(self, app: Flask, request: Request, key_header: str | None) -> None:
        """Look at a request whose sender is known by no more than an address.

        Args:
            app: the application.
            request: the request.
            key_header: the header that an idempotency key came in, which is no credential.
        """
        endpoint = request.endpoint
        if (_CREDENTIALS, endpoint) not in self._given:
            place = self._looks_like_a_credential(app, request, key_header)
            if place is not None:
                self._given.add((_CREDENTIALS, endpoint))
                _logger.warning(
                    "Senders are told apart by address only, and a request carries what may be a "
                    "credential: %s. If it says who asks, name it in IDEMPOTENCE_IDENTITY_%s, or "
                    "register an identity_loader; else users behind one address are one: "
                    "endpoint=%s",
                    *place,
                    endpoint,
                )
        if self._address_counts and (_PROXY, endpoint) not in self._given:
            self._about_proxy(request)

    def about_scheme(self, request: Request, scheme: str) -> None:
        """Warn that a repeat may not be recognised by credentials of an unknown scheme.

        Args:
            request: the request.
            scheme: its name; empty where it is not certain to be one.
        """
        if (_SCHEME, request.endpoint) in self._given:
            return
        self._given.add((_SCHEME, request.endpoint))
        _logger.warning(
            "The Authorization header counts as a whole, its scheme is %s: if it changes between "
            "attempts, a repeat is not recognised, and runs again. Register an identity_loader "
            "that returns what stays: endpoint=%s",
            scheme or "unknown",
            request.endpoint,
        )

    def _about_proxy(self, request: Request) -> None:
        environ = request.environ
        if self._ip_header is not None or "werkzeug.proxy_fix.orig" in environ:
            return
        for key, name in _FORWARDED.items():
            value = environ.get(key)
            # A middleware of another kind may have put the forwarded address in its place.
            if value and request.remote_addr not in _SEPARATORS.split(value):
                self._given.add((_PROXY, request.endpoint))
                _logger.warning(
                    "Guests are told apart by address, and requests come through a proxy (%s) "
                    "that is not configured: all guests are one. Wrap app.wsgi_app in werkzeug's "
                    "ProxyFix, or set IDEMPOTENCE_IP_HEADER: endpoint=%s",
                    name,
                    request.endpoint,
                )
                return
        if not request.remote_addr:
            self._given.add((_PROXY, request.endpoint))
            _logger.warning(
                "Guests are told apart by address, and the server passes none on, as behind a "
                "unix socket: all guests are one. Have the proxy send X-Forwarded-For, and wrap "
                "app.wsgi_app in werkzeug's ProxyFix: endpoint=%s",
                request.endpoint,
            )

    def _looks_like_a_credential(
        self, app: Flask, request: Request, key_header: str | None
    ) -> tuple[str, str] | None:
        if len(self._harmless) > _MOST_NAMES:
            self._harmless.clear()
        for key in request.environ.keys() - self._harmless:
            if not key.startswith("HTTP_") or not is_suspicious(name := _header_name(key)):
                self._harmless.add(key)
                continue
            is_ours = name in self._counted or name == (key_header or "").lower()
            if not is_ours and request.environ[key]:
                return f"the header {name}", "HEADERS"
        if "HTTP_COOKIE" in request.environ:
            of_session = app.config.get("SESSION_COOKIE_NAME")
            for name in request.cookies:
                if name != of_session and is_suspicious(name):
                    return f"the cookie {_shown(name)}", "COOKIES"
            for name in session_with_content() or ():
                if isinstance(name, str) and _is_of_user(name):
                    return f"{_shown(name)} in the session", "SESSION_KEYS"
        return None


@functools.lru_cache(maxsize=1024)
def is_suspicious(name: str) -> bool:
    """Whether the name of a header or cookie sounds as if it held a credential."""
    short = name[:_LONGEST_NAME]
    if FORGERY.search(short) or _HARMLESS.search(short):
        return False
    return _SUSPICIOUS.search(short) is not None


def _is_of_user(name: str) -> bool:
    is_account = name in ACCOUNTS  # which counts already
    return not is_account and bool(_OF_SESSION.search(name)) and not FORGERY.search(name)


@functools.lru_cache(maxsize=1024)
def _header_name(key: str) -> str:
    return key[5:].replace("_", "-").lower()[:_LONGEST_NAME]


def _shown(name: str) -> str:
    return ascii(name[:_LONGEST_NAME])[1:-1]
