"""Who is asking."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flask import Flask

from .advice import Advice
from .authorization import read_authorization
from .credentials import Credentials
from .fingerprint import canonical_texts
from .logins import (
    account_of_session,
    flask_login_user,
    id_of,
    is_certain,
    loaded_identity,
    user_of_server,
    users_of,
)
from .proxies import session_with_content

if TYPE_CHECKING:
    from flask import Request

    from ..config.callbacks import Callbacks
    from ..config.settings import Config

_Source = Callable[[Flask, "Request"], list[str]]

GUEST = "guest"
"""Identity of a sender whom no source identifies."""


class Identities:
    """Finds out who sent a request, by the application's sources in their order.

    A wrong "different" costs a second run, a wrong "same" hands out somebody's answer: in doubt,
    two senders are different.

    Args:
        config: the settings.
        hooks: hold the application's own source, which is asked first; None from it asks the next.
    """

    def __init__(self, config: Config, hooks: Callbacks) -> None:
        self._hooks = hooks
        self._ip_header = config.ip_header
        self._session_keys = config.identity_session_keys
        self._by_host = config.identity_host
        self._credentials = Credentials(config.identity_headers, config.identity_cookies)
        self._has_accounts = "credentials" in config.identity
        self._has_session = "session" in config.identity
        self._advice = Advice(config)
        sources: dict[str, _Source] = {
            "user": users_of,
            "session": self._session,
            "authorization": self._authorization,
            "credentials": self._listed,
            "ip": self._address,
        }
        self._sources = {name: sources[name] for name in config.identity}
        self._known = {name: self._sources[name] for name in self._sources if name != "ip"}
        # A token is issued at a URL of its own, so only what is known there can be compared.
        at_every_url: dict[str, _Source] = {
            "user": flask_login_user,
            "session": self._session,
            "authorization": self._stable_authorization,
        }
        self._binding = {
            name: at_every_url[name] for name in config.identity if name in at_every_url
        }

    def of(self, app: Flask, request: Request) -> str:
        """Return the identity of a request's sender."""
        return self._identity(app, request, self._sources)

    def of_key(
        self, app: Flask, request: Request, *, unguessable: bool, header: str | None = None
    ) -> str:
        """Return the identity of the sender of an idempotency key.

        Args:
            app: the application.
            request: the request.
            unguessable: whether the key itself tells a guest from all others. Then the address
                does not count, which may change between two attempts.
            header: the header that the key came in.
        """
        sources = self._known if unguessable else self._sources
        return self._identity(app, request, sources, header)

    def bearer_of(self, app: Flask, request: Request) -> str:
        """Return whom a token is bound to: a signed-in user, or nobody (empty).

        An address is no one to bind to: a guest's changes with the network. Nor is a cookie: a
        guest's changes with the login.
        """
        _, found = self._ask(app, request, self._binding)
        return self._text(app, request, found) if found else ""

    def _identity(
        self,
        app: Flask,
        request: Request,
        sources: dict[str, _Source],
        key_header: str | None = None,
    ) -> str:
        source, found = self._ask(app, request, sources)
        # A login that all share, such as a site's password, must not hide the users behind it.
        server = user_of_server(request) if "user" in sources and source != "loader" else []
        if source in {"", "ip"} and server:
            found = server + [each for each in found if not each.startswith("ip:")]
        elif source in {"", "ip"}:
            self._advice.about_guest(app, request, key_header)
        else:
            found = found + server + self._besides(app, request, source, sources)
        if accounts := self._accounts(request, source):
            found = [*found, f"account:{canonical_texts(*accounts).decode('ascii')}"]
        return self._text(app, request, found)

    def _besides(
        self, app: Flask, request: Request, source: str, sources: dict[str, _Source]
    ) -> list[str]:
        """Return the senders of a second source, which counts together with the first."""
        if source == "user" and flask_login_user(app, request):
            return []  # who is in the session already
        pairs = {
            "user": "session",
            "authorization": "credentials",
            "credentials": "authorization",
        }
        second = pairs.get(source)
        return sources[second](app, request) if second in sources else []

    def _accounts(self, request: Request, source: str) -> list[str]:
        accounts = self._credentials.accounts(request) if self._has_accounts else []
        is_asked = self._has_session and source != "loader"
        session = session_with_content() if is_asked else None
        return accounts if session is None else accounts + account_of_session(session)

    def _ask(
        self, app: Flask, request: Request, sources: dict[str, _Source]
    ) -> tuple[str, list[str]]:
        load = self._hooks.load_identity
        if load is not None and (loaded := loaded_identity(load())) is not None:
            return "loader", [loaded]
        found: list[str] = []
        for name, source in sources.items():
            senders = source(app, request)
            found += senders
            if any(map(is_certain, senders)):
                return name, found
        return "", found

    def _text(self, app: Flask, request: Request, found: list[str]) -> str:
        if len(found) > 1:
            who = canonical_texts(*found).decode("ascii")
        else:
            who = found[0] if found else GUEST
        # One application may be mounted at several places, each with users of its own.
        place = request.script_root
        if self._by_host or app.url_map.host_matching or app.subdomain_matching:
            place = request.host.lower() + place
        return f"{place.replace(' ', '%20')} {who}" if place else who

    def _session(self, app: Flask, request: Request) -> list[str]:
        del app, request
        session = session_with_content()
        if session is None:
            return []
        found = []
        for name in self._session_keys:
            user = id_of(session.get(name))
            if user is not None:
                found.append(f"session:{name}{user}")
                if is_certain(found[-1]):
                    break
        return found

    def _authorization(self, app: Flask, request: Request) -> list[str]:
        del app
        sent = read_authorization(request.environ.get("HTTP_AUTHORIZATION", ""))
        if sent is None:
            return []
        if not sent.is_stable:
            self._advice.about_scheme(request, sent.scheme)
        return [sent.text]

    def _stable_authorization(self, app: Flask, request: Request) -> list[str]:
        del app
        sent = read_authorization(request.environ.get("HTTP_AUTHORIZATION", ""))
        return [sent.text] if sent is not None and sent.is_stable else []

    def _listed(self, app: Flask, request: Request) -> list[str]:
        found = self._credentials.of(app, request)
        return [f"credentials:{canonical_texts(*found).decode('ascii')}"] if found else []

    def _address(self, app: Flask, request: Request) -> list[str]:
        del app
        named = request.headers.get(self._ip_header, "").strip() if self._ip_header else ""
        address = named or request.remote_addr
        return [f"ip:{address}"] if address else []
