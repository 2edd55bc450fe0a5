"""Identities: the sender of a request, by the application's sources in their order."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flask import Flask, Request, g
from flask.globals import request_ctx

from ..config.runtime import Callbacks
from ..config.settings import Config
from .credentials import Credentials, read_authorization
from .fingerprint import canonical_json
from .key_header import is_unguessable
from .logins import (
    LEFT_BY_LIBRARIES,
    Sender,
    accounts_of_session,
    flask_login_user,
    id_of,
    loaded_sender,
    user_of_server,
    users_of,
)
from .proxies import actual, session_with_content
from .warnings import IdentityWarnings

_Sources = Mapping[str, Callable[[Flask, "Request"], list[Sender]]]

_AUTHORIZATION = "HTTP_AUTHORIZATION"
_GUEST = [Sender("guest", "guest")]
_EVERYBODY = [Sender("everybody", "everybody")]

_SECOND = {"user": "session", "authorization": "credentials", "credentials": "authorization"}
"""Sources that count together with the one that has identified the sender."""


class Identity(NamedTuple):
    """All senders that count for a request, as one text, and their sources for the log."""

    text: str
    sources: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Identity {'+'.join(self.sources)}>"


NOBODY = Identity("", ())


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
        sources: _Sources = {
            "user": users_of,
            "session": self._session,
            "authorization": self._authorization,
            "credentials": self._credentials.of,
            "ip": self._address,
        }
        self._sources: _Sources = {name: sources[name] for name in config.identity}
        self._known: _Sources = {name: sources[name] for name in config.identity if name != "ip"}
        # A token is issued at a URL of its own: only sources that are the same there count.
        sources = {
            "user": flask_login_user,
            "session": self._session,
            "authorization": self._stable_authorization,
        }
        self._binding: _Sources = {
            name: sources[name] for name in config.identity if name in sources
        }

    def of(
        self,
        app: Flask,
        request: Request,
        key: str | None = None,
        *,
        unguessable: bool | None = None,
        header: str | None = None,
    ) -> Identity:
        """Return the identity of a request's sender.

        `unguessable` says whether the key alone identifies a guest; None: its form decides. The
        address does not count then, which may change between two attempts.
        """
        is_secret = unguessable or (
            unguessable is None and key is not None and is_unguessable(key)
        )
        by_source = self._known if is_secret else self._sources
        source, found, sources = self._first(app, request, by_source)
        environ, server = request.environ, []
        if "REMOTE_USER" in environ and source != "loader" and "user" in self._sources:
            # A login that all share, such as a site's password, must not hide the users behind it.
            server = user_of_server(request)
        if source not in ("", "ip"):
            found = found + server + self._second(app, request, source, sources)
        elif server:
            found = server + [sender for sender in found if sender.source != "ip"]
        elif not environ.keys() <= self._warnings.meaningless or not request.remote_addr:
            self._warnings.about_guest(app, request, header)
        if "session" in sources or not self._credentials.accounts.keys().isdisjoint(environ):
            found = found + self._accounts(request, source)
        return self._identity(app, request, found or _GUEST)

    def of_all(self, app: Flask, request: Request) -> Identity:
        return self._identity(app, request, _EVERYBODY)

    def bearer_of(self, app: Flask, request: Request) -> Identity:
        """Return the signed-in user to whom a token is bound; `NOBODY` for a guest.

        An address does not count: a guest's changes with the network. Nor does a cookie: a
        guest's changes with the login.
        """
        _, found, _ = self._first(app, request, self._binding)
        return self._identity(app, request, found) if found else NOBODY

    def _first(
        self, app: Flask, request: Request, sources: _Sources
    ) -> tuple[str, list[Sender], _Sources]:
        """Return the first source that is certain of the sender, and all senders found so far.

        The third value are the sources that may find a sender at all: in most requests, most of
        them cannot, which shows quicker here than in each of them.
        """
        environ, load = request.environ, self._callbacks.load_identity
        # Flask adds `Vary: Cookie` once a session is read: an empty one is passed over.
        session = getattr(actual(request_ctx), "_session", None)
        has_library = getattr(app, "login_manager", None) is not None
        is_listed = not self._credentials.names.isdisjoint(environ)
        silent = {
            "user": not has_library and LEFT_BY_LIBRARIES.isdisjoint(actual(g)),
            "session": session is not None and not session,
            "authorization": _AUTHORIZATION not in environ,
            "credentials": not is_listed and "JWT_HEADER_NAME" not in app.config,
        }
        speaking = dict(sources)
        for name, is_silent in silent.items():
            if is_silent:
                speaking.pop(name, None)
        if load is not None and (loaded := loaded_sender(load())) is not None:
            return "loader", [loaded], speaking
        found: list[Sender] = []
        for name, source in speaking.items():
            for sender in source(app, request):
                found.append(sender)
                if sender.is_certain:
                    return name, found, speaking
        return "", found, speaking

    @staticmethod
    def _second(app: Flask, request: Request, first: str, sources: _Sources) -> list[Sender]:
        second = sources.get(_SECOND.get(first, ""))
        if second is None or (first == "user" and flask_login_user(app, request)):
            return []  # the session has the same user
        return second(app, request)

    def _accounts(self, request: Request, source: str) -> list[Sender]:
        counting, accounts = self._config.identity, []
        if "credentials" in counting:
            accounts = self._credentials.present(request, self._credentials.accounts)
        is_read = "session" in counting and source != "loader"
        if is_read and (session := session_with_content()) is not None:
            accounts += accounts_of_session(session)
        return [Sender.of_texts("account", accounts)] if accounts else []

    def _identity(self, app: Flask, request: Request, found: list[Sender]) -> Identity:
        text = found[0].text
        sources: tuple[str, ...] = (found[0].source,)
        if len(found) > 1:
            text = canonical_json([sender.text for sender in found])
            sources = tuple(dict.fromkeys(sender.source for sender in found))
        counts = self._config.identity_host or app.url_map.host_matching or app.subdomain_matching
        place = _place(request.host.lower() if counts else "", request.script_root)
        return Identity(f"{place} {text}" if place else text, sources)

    def _session(self, _: Flask, __: Request) -> list[Sender]:
        found: list[Sender] = []
        if (session := session_with_content()) is None:
            return found
        for name in self._config.identity_session_keys:
            if (user := id_of(session.get(name))) is not None:
                # Of two settings, `user` and `user.id`, the first must not look like the second.
                label = name if name.isidentifier() else json.dumps(name)
                found.append(Sender.of_id("session", f"session:{label}", user))
                if found[-1].is_certain:
                    break
        return found

    def _authorization(self, _: Flask, request: Request) -> list[Sender]:
        sent = read_authorization(request.environ[_AUTHORIZATION])
        if sent is not None and not sent.is_stable:
            self._warnings.about_scheme(request, sent.scheme)
        return [] if sent is None else [Sender("authorization", sent.text)]

    def _stable_authorization(self, _: Flask, request: Request) -> list[Sender]:
        sent = read_authorization(request.environ[_AUTHORIZATION])
        return [Sender("authorization", sent.text)] if sent is not None and sent.is_stable else []

    def _address(self, _: Flask, request: Request) -> list[Sender]:
        header = self._config.ip_header
        named = request.headers.get(header, "").strip() if header else ""
        address = named or request.remote_addr
        return [Sender("ip", f"ip:{address}")] if address else []


@functools.lru_cache(maxsize=1024)
def _place(host: str, root: str) -> str:
    """Return the text of a host and of the path at which the application is mounted there.

    One application may be mounted at several places, each with users of its own. The text has no
    space, and its first slash is the path's.
    """
    host, root = (part.replace("%", "%25").replace(" ", "%20") for part in (host, root))
    return host.replace("/", "%2F") + root
