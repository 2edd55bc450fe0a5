"""Identities: the sender of a request, by the application's sources in their order."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from flask import Flask, Request, g

from ..config.runtime import Callbacks
from ..config.settings import Config
from .credentials import Credentials, present, read_authorization
from .fingerprint import canonical_json
from .key_header import is_unguessable
from .logins import (
    ACCOUNTS,
    LEFT_BY_LIBRARIES,
    Sender,
    flask_login_user,
    id_of,
    loaded_sender,
    users_of,
)
from .proxies import actual, current_context, session_with_content
from .warnings import IdentityWarnings

_Sources = Mapping[str, Callable[[Flask, "Request"], list[Sender]]]

_AUTHORIZATION = "HTTP_AUTHORIZATION"
_SECOND = {"user": "session", "authorization": "credentials", "credentials": "authorization"}
"""Sources that count together with the one that has identified the sender."""


class Identity(NamedTuple):
    """All senders that count for a request, as one text, and their sources for the log."""

    text: str
    senders: tuple[Sender, ...]

    @property
    def sources(self) -> str:
        return "+".join(dict.fromkeys(sender.source for sender in self.senders))

    def __repr__(self) -> str:
        return f"<Identity {self.sources}>"


NOBODY = Identity("", ())


class Identities:
    """Identifies the senders of requests.

    A wrong "different" costs a second run, a wrong "same" leaks a response to another sender: in
    doubt, two senders are different.
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
        # A token is issued at a URL of its own: only sources that are the same there count.
        sources = {
            "user": flask_login_user,
            "session": self._session,
            "authorization": functools.partial(self._authorization, for_token=True),
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
        if unguessable is None:
            unguessable = key is not None and is_unguessable(key)
        by_address = not unguessable
        source, found, may_find = self._first(app, request, self._sources, by_address=by_address)
        server = request.environ.get("REMOTE_USER")
        if server and str(server).strip() and source != "loader" and "user" in self._sources:
            # A login that all share, such as a site's password, must not hide the users behind it.
            found = [sender for sender in found if sender.source != "ip"]
            found.append(Sender("user", f"user:remote_user={server}"))
        elif source in ("", "ip") and (may_find["warning"] or not request.remote_addr):
            self._warnings.about_guest(app, request, header)
        second = _SECOND.get(source, "")
        is_heard = second in self._sources and may_find[second]
        # The session has the same user as Flask-Login.
        if is_heard and not (source == "user" and flask_login_user(app, request)):
            found += self._sources[second](app, request)
        if may_find["session"] or may_find["account"]:
            found += self._accounts(request, is_loaded=source == "loader")
        return self._identity(app, request, found or [Sender("guest", "guest")])

    def of_all(self, app: Flask, request: Request) -> Identity:
        return self._identity(app, request, [Sender("everybody", "everybody")])

    def bearer_of(self, app: Flask, request: Request | None) -> Identity:
        """Return the signed-in user to whom a token is bound; `NOBODY` for a guest.

        An address does not count: a guest's changes with the network. Nor does a cookie: a
        guest's changes with the login.
        """
        if request is None:
            return NOBODY
        _, found, _ = self._first(app, request, self._binding)
        return self._identity(app, request, found) if found else NOBODY

    def _first(
        self, app: Flask, request: Request, sources: _Sources, *, by_address: bool = False
    ) -> tuple[str, list[Sender], dict[str, bool]]:
        """Return the first source that is certain of the sender, and all senders found so far.

        The third value says which sources may find a sender at all: in most requests, most of
        them cannot, which shows quicker here than in each of them.
        """
        load, names = self._callbacks.load_identity, request.environ.keys()
        is_telling = not names <= self._warnings.meaningless
        # Flask adds `Vary: Cookie` once a session is read: an empty one is passed over.
        session = getattr(current_context(), "_session", None)
        has_library = getattr(app, "login_manager", None) is not None
        is_listed = is_telling and not names.isdisjoint(self._credentials.names)
        may_find = {
            "user": has_library or not LEFT_BY_LIBRARIES.isdisjoint(actual(g)),
            "session": session is None or bool(session),
            "authorization": is_telling and _AUTHORIZATION in names,
            "credentials": is_listed or "JWT_HEADER_NAME" in app.config,
            "account": is_telling and not names.isdisjoint(self._credentials.accounts),
            "ip": by_address,
            "warning": is_telling,
        }
        if load is not None and (loaded := loaded_sender(load())) is not None:
            return "loader", [loaded], may_find
        found: list[Sender] = []
        for name, source in sources.items():
            for sender in source(app, request) if may_find[name] else ():
                found.append(sender)
                if sender.is_certain:
                    return name, found, may_find
        return "", found, may_find

    def _accounts(self, request: Request, *, is_loaded: bool) -> list[Sender]:
        counting, accounts = self._config.identity, []
        if "credentials" in counting:
            accounts = present(request, self._credentials.accounts)
        is_read = "session" in counting and not is_loaded
        if is_read and (session := session_with_content()) is not None:
            for name in ACCOUNTS:
                if (account := id_of(session.get(name))) is not None:
                    accounts += [f"session {name}", account]
        return [Sender("account", f"account:{canonical_json(accounts)}")] if accounts else []

    def _identity(self, app: Flask, request: Request, found: list[Sender]) -> Identity:
        text = found[0].text
        if len(found) > 1:
            text = canonical_json([sender.text for sender in found])
        counts = self._config.identity_host or app.url_map.host_matching or app.subdomain_matching
        place = _place(request.host.lower() if counts else "", request.script_root)
        return Identity(f"{place} {text}" if place else text, tuple(found))

    def _session(self, _: Flask, __: Request) -> list[Sender]:
        found: list[Sender] = []
        if (session := session_with_content()) is None:
            return found
        for name in self._config.identity_session_keys:
            if (user := id_of(session.get(name))) is not None:
                # Of two settings, `user` and `user.id`, the first must not look like the second.
                label = name if name.isidentifier() else json.dumps(name)
                found.append(Sender.of_id("session", label, user))
                if found[-1].is_certain:
                    break
        return found

    def _authorization(
        self, _: Flask, request: Request, *, for_token: bool = False
    ) -> list[Sender]:
        text, unstable = read_authorization(request.environ[_AUTHORIZATION])
        if unstable and not for_token:
            self._warnings.about_scheme(request, unstable)
        return [Sender("authorization", text)] if text and not (unstable and for_token) else []

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
