"""Headers and cookies that carry credentials or choose an account."""

from __future__ import annotations

import fnmatch
import functools
import re
from typing import TYPE_CHECKING

from .proxies import session_id

if TYPE_CHECKING:
    from flask import Flask, Request

    from ..config.settings import Config

FORGERY = re.compile(r"csrf|xsrf", re.IGNORECASE)
"""Names of tokens against forged requests: each visitor has one, and it may change any time."""

_CREDENTIAL = re.compile(r"key|token|auth|secret|session|jwt|credential|passw", re.IGNORECASE)
_PREFIX = re.compile(r"__(?:Host|Secure)-")
_LONGEST_NAME = 256


class Credentials:
    """Finds the headers and cookies that distinguish senders.

    A header whose name says that it holds a credential (`key`, `token`, `auth` and the like)
    counts for guests. Every other listed header chooses an account, and counts
    besides any user.
    """

    def __init__(self, config: Config) -> None:
        self._secret: dict[str, str] = {}
        self._accounts: dict[str, str] = {}
        for header in config.identity_headers:
            kind = self._secret if _CREDENTIAL.search(header) else self._accounts
            kind[environ_key(header)] = header.lower()
        patterns = "|".join(fnmatch.translate(name.lower()) for name in config.identity_cookies)
        self._cookies = re.compile(patterns) if patterns else None

    def of(self, app: Flask, request: Request) -> list[str]:
        """Return names and values of a request's credentials, alternately."""
        found = _present(request, self._secret)
        # Where Flask-JWT-Extended looks for its tokens is a setting of its own.
        own = app.config.get("JWT_HEADER_NAME")
        if own and own.lower() != "authorization":
            found += _present(request, {environ_key(own): own.lower()})
        if "HTTP_COOKIE" in request.environ:
            found += self._of_cookies(app, request)
        return found

    def accounts(self, request: Request) -> list[str]:
        """Return names and values of the headers that choose an account, alternately."""
        return _present(request, self._accounts)

    def _of_cookies(self, app: Flask, request: Request) -> list[str]:
        cookies = request.cookies
        of_session = app.config.get("SESSION_COOKIE_NAME")
        of_jwt = app.config.get("JWT_ACCESS_COOKIE_NAME")
        found = [
            text
            for name, value in sorted(cookies.items(multi=True))
            if value
            and name != of_session  # its content changes from response to response
            and (name == of_jwt or self._counts(name))
            for text in (f"cookie {name}", value)
        ]
        if of_session in cookies and (sid := session_id()) is not None:
            found += ["session id", sid]
        return found

    def _counts(self, name: str) -> bool:
        if self._cookies is None or FORGERY.search(name):
            return False
        plain = _PREFIX.sub("", name).lower()
        # Only an attacker sends longer names: they are not searched for patterns.
        return len(plain) > _LONGEST_NAME or self._cookies.match(plain) is not None


@functools.lru_cache(maxsize=1024)
def environ_key(header: str) -> str:
    """Return the name of a header in the WSGI environment."""
    return f"HTTP_{header.upper().replace('-', '_')}"


def _present(request: Request, headers: dict[str, str]) -> list[str]:
    environ = request.environ
    if environ.keys().isdisjoint(headers):
        return []
    return [
        text
        for key, name in headers.items()
        if (value := environ.get(key, "").strip())
        for text in (f"header {name}", value)
    ]
