"""Warnings about identities and misnamed headers: names, and never a value."""

from __future__ import annotations

import logging
import re

from flask import Request

from ..config.settings import Config
from .credentials import RENEWED, header_name, plain_cookie
from .forms import form_of
from .key_header import environ_key
from .senders import ACCOUNTS, Asked

_logger = logging.getLogger("flask_idempotence")

# Headers of requests in IANA's registry and in those of browsers and proxies. Client-Cert, Cookie
# and From are left out: they name a sender.
_REGISTERED = frozenset(
    re.findall(
        r"\S+",
        """
        accept accept-charset accept-datetime accept-encoding accept-language
        access-control-request-headers access-control-request-method alt-used authorization
        baggage cache-control cdn-loop connection content-digest content-encoding
        content-language content-length content-location content-md5 content-range content-type
        date device-memory dnt downlink dpop dpr early-data ect expect expires host if
        if-match if-modified-since if-none-match if-range if-unmodified-since keep-alive
        last-event-id link max-forwards origin pragma prefer priority proxy-connection purpose
        range referer repr-digest rtt save-data sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform
        sec-fetch-dest sec-fetch-mode sec-fetch-site sec-fetch-user sec-gpc signature
        signature-input te traceparent tracestate trailer transfer-encoding upgrade
        upgrade-insecure-requests user-agent via viewport-width want-content-digest
        want-repr-digest warning width x-forwarded-host x-forwarded-port x-forwarded-prefix
        x-forwarded-proto x-requested-with
        """,
    )
)

# Names that identify no sender. Those of a login that is under way contain a secret.
_NOT_TOLD = re.compile(r"csrf|xsrf|^sec-|_state_|nonce", re.IGNORECASE)
_MOST_NAMED = 50
_LONGEST_NAME = 64
# A form may have a hundred thousand names, and each comparison takes a microsecond or two.
_MOST_COMPARED = 100

_FORWARDED = {
    "HTTP_X_FORWARDED_FOR": "X-Forwarded-For",
    "HTTP_FORWARDED": "Forwarded",
    "HTTP_X_REAL_IP": "X-Real-IP",
}
_NOT_COUNTED = (
    "A guest's request has a %s that does not count: %s. If it identifies the sender, name it "
    "in IDEMPOTENCE_IDENTITY_%s, or register an identity_loader: endpoint=%s"
)
_MAPPING = (
    "The session holds a mapping under %s, and no id: it counts as a whole, and a field that "
    "changes makes a repeat a new request. Keep the user's id there, or register an "
    "identity_loader: endpoint=%s"
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
    """Warns where senders may be confused, or a repeat not be recognised.

    Attributes:
        known: keys in environments that say nothing new of a guest.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._checks_address = "ip" in config.identity and config.ip_header is None
        listed, self._source = config.identity_headers, ""
        if "credentials" not in config.identity:
            listed, self._source = (), ", with credentials in IDEMPOTENCE_IDENTITY"
        own = (config.key_header, config.token_header, config.ip_header or "")
        self.known = {*map(environ_key, (*_REGISTERED, *listed, *own))}
        self._named: set[tuple[str, object]] = set()
        self._in_session = {*config.identity_session_keys, *ACCOUNTS, "_flashes", "_permanent"}

    def about_scheme(self, request: Request, scheme: str) -> None:
        self._warn("scheme", request.endpoint, _SCHEME, scheme)

    def about_mapping(self, name: str, request: Request) -> None:
        if ("", name) not in self._named:  # a setting has the name: there are few
            self._named.add(("", name))
            _logger.warning(_MAPPING, _shown(name), request.endpoint)

    def about_guest(self, asked: Asked, key_header: str | None) -> None:
        """Name uncounted headers, cookies and entries of the session, and check the address.

        The header that an idempotency key came in is no credential.
        """
        request, environ = asked.request, asked.request.environ
        if len(self._named) < _MOST_NAMED:
            unheard = {environ_key(key_header or ""), "HTTP_COOKIE", *_FORWARDED}
            for key in environ.keys() - self.known - unheard:
                # A client may send any number of names that are not logged.
                if not key.startswith("HTTP_") or (
                    environ[key]
                    and self._tell("HEADERS" + self._source, "header", header_name(key), request)
                ):
                    self.known.add(key)
            for name in request.cookies.keys() - {asked.app.config.get("SESSION_COOKIE_NAME")}:
                self._tell("COOKIES" + self._source, "cookie", name, request)
            for name in (asked.session or {}).keys() - self._in_session:
                self._tell("SESSION_KEYS", "session entry", str(name), request)
        if self._checks_address:
            self._check_address(request)

    def _tell(self, setting: str, kind: str, name: str, request: Request) -> bool:
        """Log a name that does not count, once; return whether it may be logged at all."""
        if (setting, name) in self._named:
            return True
        if _NOT_TOLD.search(name) or plain_cookie(name) in RENEWED:
            return False
        if len(self._named) < _MOST_NAMED:
            self._named.add((setting, name))
            _logger.warning(_NOT_COUNTED, kind, _shown(name), setting, request.endpoint)
        return True

    def _check_address(self, request: Request) -> None:
        environ, endpoint = request.environ, request.endpoint
        if "werkzeug.proxy_fix.orig" in environ:  # a proxy is configured: the address is right
            self.known.update(_FORWARDED)
        elif self._is_new("address", endpoint):
            for key, name in _FORWARDED.items():
                value = environ.get(key)
                # A middleware of another kind may have put the address in its place.
                if value and request.remote_addr not in re.split(r'[],;="[\s]+', value):
                    self._warn("address", endpoint, _PROXY, name)
            if not request.remote_addr:
                self._warn("address", endpoint, _NO_ADDRESS)


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
