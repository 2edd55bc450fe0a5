"""Identities: the sender of a request, by the application's sources in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flask import Flask, g
from flask.globals import request_ctx

from .authorization import read_authorization
from .credentials import Credentials, environ_key
from .fingerprint import canonical_texts
from .identity_warnings import IdentityWarnings
from .key_header import is_unguessable
from .logins import (
    LEFT_BY_LIBRARIES,
    accounts_of_session,
    flask_login_user,
    id_of,
    is_certain,
    loaded_identity,
    user_of_server,
    users_of,
)
from .proxies import actual, session_with_content

if TYPE_CHECKING:
    from flask import Request

    from ..config.runtime import Callbacks
    from ..config.settings import Config

_Source = Callable[[Flask, "Request"], list[str]]

GUEST = "guest"
"""Identity of a sender whom no source identifies."""

EVERYBODY = "everybody"
"""Identity of all senders, where the sender does not count."""

_AUTHORIZATION = "HTTP_AUTHORIZATION"

_SECOND = {"user": "session", "authorization": "credentials", "credentials": "authorization"}
"""Sources that count together with the one that has identified the sender."""


class Identities:
    """Identifies the senders of requests.

    A wrong "different" costs a second run, a wrong "same" leaks a response to another sender: in
    doubt, two senders are different.

    The application's own source, in its callbacks, is the first one.
    """

    def __init__(self, config: Config, callbacks: Callbacks) -> None:
        self._config = config
        self._callbacks = callbacks
        self._credentials = Credentials(config)
        self._warnings = IdentityWarnings(config)
        sources: dict[str, _Source] = {
            "user": users_of,
            "session": self._session,
            "authorization": self._authorization,
            "credentials": self._listed,
            "ip": self._address,
        }
        self._sources = {name: sources[name] for name in config.identity}
        self._known = {name: self._sources[name] for name in self._sources if name != "ip"}
        by_request = [name for name in self._sources if name in {"authorization", "ip"}]
        headers = config.identity_headers if "credentials" in self._sources else ()
        counts_twice = _AUTHORIZATION in map(environ_key, headers)
        decides = by_request[:1] == ["authorization"] and not counts_twice
        self._always_plain = {_AUTHORIZATION} if decides else set()
        self._plain_names: set[str] = set()
        # A token is issued at a URL of its own: only sources that are the same there count.
        sources = {"session": self._session, "authorization": self._stable_authorization}
        sources["user"] = flask_login_user
        self._binding = {name: sources[name] for name in config.identity if name in sources}

    def of(self, app: Flask, request: Request) -> str:
        """Return the identity of a request's sender."""
        return self._identity(app, request, lambda: self._sources)

    def of_all(self, app: Flask, request: Request) -> str:
        """Return the identity that stands for every sender at the request's host."""
        return self._text(app, request, [EVERYBODY])

    def of_key(
        self,
        app: Flask,
        request: Request,
        key: str,
        *,
        unguessable: bool | None = None,
        header: str | None = None,
    ) -> str:
        """Return the identity of the sender of an idempotency key.

        Args:
            app: the application.
            request: the request.
            key: the key.
            unguessable: whether the key alone identifies a guest; None to judge it by
                its form. The address does not count then, which may change between two attempts.
            header: the header that the key came in.
        """

        def choose() -> dict[str, _Source]:
            is_secret = is_unguessable(key) if unguessable is None else unguessable
            return self._known if is_secret else self._sources

        return self._identity(app, request, choose, header)

    def bearer_of(self, app: Flask, request: Request) -> str:
        """Return the signed-in user to whom a token is bound; empty for none.

        An address does not count: a guest's changes with the network. Nor does a cookie: a
        guest's changes with the login.
        """
        found = self._plain_sender(app, request, self._stable_authorization)
        if found is None:
            self._learn(request)
            _, found = self._first(app, request, self._binding)
        return self._text(app, request, found) if found else ""

    def _identity(
        self,
        app: Flask,
        request: Request,
        choose: Callable[[], dict[str, _Source]],
        key_header: str | None = None,
    ) -> str:
        plain = self._plain_sender(app, request, self._authorization)
        if plain:
            return self._text(app, request, plain)
        sources = choose()
        if plain is not None:
            return self._text(app, request, self._address(app, request) if "ip" in sources else [])
        self._learn(request)
        source, found = self._first(app, request, sources)
        # A login that all share, such as a site's password, must not hide the users behind it.
        server = user_of_server(request) if "user" in sources and source != "loader" else []
        if source not in {"", "ip"}:
            found = found + server + self._second(app, request, source, sources)
        elif server:
            found = server + [each for each in found if not each.startswith("ip:")]
        else:
            self._warnings.about_guest(app, request, key_header)
        if accounts := self._accounts(request, source):
            found = [*found, f"account:{canonical_texts(*accounts).decode('ascii')}"]
        return self._text(app, request, found)

    def _plain_sender(
        self, app: Flask, request: Request, authorization: _Source
    ) -> list[str] | None:
        """Return the sender where only `Authorization` or an address can identify one.

        These are the common cases, and the result is that of the long way: the sender by
        `authorization`; empty for a guest; None for all other requests, and where a warning may
        be due.
        """
        environ = request.environ
        if (
            not environ.keys() <= self._plain_names
            or self._callbacks.load_identity is not None
            or getattr(app, "login_manager", None) is not None
            or "JWT_HEADER_NAME" in app.config
            or not LEFT_BY_LIBRARIES.isdisjoint(actual(g))
            or getattr(actual(request_ctx), "_session", True)
        ):
            return None
        if _AUTHORIZATION in environ:  # empty credentials identify no sender
            return authorization(app, request) or None
        return [] if request.remote_addr else None

    def _learn(self, request: Request) -> None:
        """Note the names in an environment that cannot hold a credential."""
        self._warnings.learn(request.environ)
        self._plain_names = self._always_plain | self._warnings.meaningless

    def _first(
        self, app: Flask, request: Request, sources: dict[str, _Source]
    ) -> tuple[str, list[str]]:
        """Return the first source that is certain of the sender, and all senders found so far."""
        load = self._callbacks.load_identity
        if load is not None and (loaded := loaded_identity(load())) is not None:
            return "loader", [loaded]
        found: list[str] = []
        for name, source in sources.items():
            if senders := source(app, request):
                found += senders
                if any(map(is_certain, senders)):
                    return name, found
        return "", found

    def _second(
        self, app: Flask, request: Request, first: str, sources: dict[str, _Source]
    ) -> list[str]:
        if first == "user" and flask_login_user(app, request):
            return []  # the session has the same user
        second = sources.get(_SECOND.get(first, ""))
        return second(app, request) if second is not None else []

    def _accounts(self, request: Request, source: str) -> list[str]:
        counting = self._config.identity
        accounts = self._credentials.accounts(request) if "credentials" in counting else []
        is_read = "session" in counting and source != "loader"
        if is_read and (session := session_with_content()) is not None:
            accounts += accounts_of_session(session)
        return accounts

    def _text(self, app: Flask, request: Request, found: list[str]) -> str:
        if len(found) > 1:
            sender = canonical_texts(*found).decode("ascii")
        else:
            sender = found[0] if found else GUEST
        # One application may be mounted at several places, each with users of its own.
        place = request.script_root
        if self._config.identity_host or app.url_map.host_matching or app.subdomain_matching:
            place = request.host.lower() + place
        return f"{place.replace(' ', '%20')} {sender}" if place else sender

    def _session(self, _: Flask, __: Request) -> list[str]:
        found: list[str] = []
        if (session := session_with_content()) is None:
            return found
        for name in self._config.identity_session_keys:
            if (user := id_of(session.get(name))) is not None:
                found.append(f"session:{name}{user}")
                if is_certain(found[-1]):
                    break
        return found

    def _authorization(self, _: Flask, request: Request) -> list[str]:
        sent = read_authorization(request.environ.get(_AUTHORIZATION, ""))
        if sent is not None and not sent.is_stable:
            self._warnings.about_scheme(request, sent.scheme)
        return [] if sent is None else [sent.text]

    def _stable_authorization(self, _: Flask, request: Request) -> list[str]:
        sent = read_authorization(request.environ.get(_AUTHORIZATION, ""))
        return [sent.text] if sent is not None and sent.is_stable else []

    def _listed(self, app: Flask, request: Request) -> list[str]:
        found = self._credentials.of(app, request)
        return [f"credentials:{canonical_texts(*found).decode('ascii')}"] if found else []

    def _address(self, _: Flask, request: Request) -> list[str]:
        header = self._config.ip_header
        named = request.headers.get(header, "").strip() if header else ""
        address = named or request.remote_addr
        return [f"ip:{address}"] if address else []
