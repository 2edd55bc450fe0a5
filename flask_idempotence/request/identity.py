"""Identities: the sender of a request, by the application's sources in their order."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flask import Flask, Request

from ..config.runtime import Callbacks
from ..config.settings import Config
from .credentials import Credentials, present, read_authorization
from .fingerprint import canonical_json
from .logins import flask_login_user, users_of
from .proxies import session_with_content
from .senders import ACCOUNTS, Asked, Sender, loaded_sender, text_of, user_in_session
from .warnings import IdentityWarnings

_Source = Callable[[Asked], list[Sender]]
# In their order: each with its name, and the one that counts beside it, if that comes later.
_Sources = Sequence[tuple[str, _Source, _Source | None]]

# Sources that count together with the one that has identified the sender.
_BESIDE = {
    "user": "session",
    "session": "user",
    "authorization": "credentials",
    "credentials": "authorization",
}

# Names under which Flask-Login, and Flask-Principal beside it, keep one user in a session.
_BY_FLASK_LOGIN = ("_user_id", "identity.id")


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
        self._names = config.identity
        self._callbacks = callbacks
        self._credentials = Credentials(config)
        self._warnings = IdentityWarnings(config)
        sources: dict[str, _Source] = {
            "user": users_of,
            "session": self._session,
            "authorization": self._authorization,
            "credentials": self._credentials.of,
            "ip": self._address,
        }
        self._sources = _in_order(config.identity, sources)
        # A token is issued at a URL of its own: only sources that are the same there count.
        sources = {
            "user": flask_login_user,
            "session": self._session,
            "authorization": functools.partial(self._authorization, for_token=True),
        }
        self._binding = _in_order(config.identity, sources)

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
        asked, names = Asked(app, request, key, unguessable), request.environ.keys()
        source, found = self._find(asked, self._sources), asked.found
        server = request.environ.get("REMOTE_USER")
        if server and str(server).strip() and source != "loader" and "user" in self._names:
            # A login that all share, such as a site's password, must not hide the users behind it.
            found = [sender for sender in found if sender.source != "ip"]
            found.append(Sender("user", f"user:remote_user={server}"))
        elif source in ("", "ip") and not (names <= self._warnings.known and request.remote_addr):
            self._warnings.about_guest(asked, header)
        accounts = self._credentials.accounts
        if asked.session is not None or not accounts.keys().isdisjoint(names):
            headers = present(request, accounts) if "credentials" in self._names else []
            found += self._accounts(asked, *headers)
        return self._identity(app, request, found or [Sender("guest", "guest")])

    def everybody(self, app: Flask, request: Request) -> Identity:
        return self._identity(app, request, [Sender("everybody", "everybody")])

    def bearer_of(self, app: Flask, request: Request | None) -> Identity:
        """Return the signed-in user to whom a token is bound; `NOBODY` for a guest.

        An address does not count: a guest's changes with the network. Nor does a cookie: a
        guest's changes with the login.
        """
        if request is None:
            return NOBODY
        asked = Asked(app, request)
        self._find(asked, self._binding)
        if not (found := asked.found):
            return NOBODY
        return self._identity(app, request, found + self._accounts(asked))

    def _find(self, asked: Asked, sources: _Sources) -> str:
        """Ask the sources in their order, until one and the one beside it are certain.

        Returns the name of that source, and `"loader"` for the application's own; empty for none.
        """
        load, found = self._callbacks.load_identity, asked.found
        if load is not None and (loaded := loaded_sender(load())) is not None:
            found.append(loaded)
            if loaded.is_certain:
                return "loader"
        if "session" in self._names:
            asked.session = session_with_content()
        for name, source, beside in sources:
            if senders := source(asked):
                found += senders
                if any(sender.is_certain for sender in senders):
                    if beside is not None:
                        found += beside(asked)
                    return name
        return ""

    def _accounts(self, asked: Asked, *headers: str) -> list[Sender]:
        """Return the accounts that headers and the session have chosen, as one sender."""
        chosen = [*headers]
        held: Mapping[str, Any] = asked.session or {}
        for name in ACCOUNTS:
            if account := text_of(held.get(name)):
                chosen += [f"session {name}", account]
        return [Sender("account", f"account:{canonical_json(chosen)}")] if chosen else []

    def _identity(self, app: Flask, request: Request, found: list[Sender]) -> Identity:
        text = found[0].text
        if len(found) > 1:
            text = canonical_json([sender.text for sender in found])
        counts = self._config.identity_host or app.url_map.host_matching or app.subdomain_matching
        place = _place(request.host.lower() if counts else "", request.script_root)
        return Identity(f"{place} {text}" if place else text, tuple(found))

    def _session(self, asked: Asked) -> list[Sender]:
        found: list[Sender] = []
        if (session := asked.session) is None:
            return found
        known = {sender.id for sender in asked.found}
        for name in self._config.identity_session_keys:
            # Of two settings, `user` and `user.id`, the first must not look like the second.
            label = name if name.isidentifier() else json.dumps(name)
            sender = user_in_session(label, session.get(name))
            if sender is None or (name in _BY_FLASK_LOGIN and sender.id in known):
                continue
            found.append(sender)
            if sender.is_certain:
                break
            self._warnings.about_mapping(name, asked.request)
        return found

    def _authorization(self, asked: Asked, *, for_token: bool = False) -> list[Sender]:
        if (sent := asked.request.environ.get("HTTP_AUTHORIZATION")) is None:
            return []
        text, unstable = read_authorization(sent)
        if unstable and not for_token:
            self._warnings.about_scheme(asked.request, unstable)
        return [Sender("authorization", text)] if text and not (unstable and for_token) else []

    def _address(self, asked: Asked) -> list[Sender]:
        if asked.is_known_by_key():
            return []
        request, header = asked.request, self._config.ip_header
        named = request.headers.get(header, "").strip() if header else ""
        address = named or request.remote_addr
        return [Sender("ip", f"ip:{address}")] if address else []


def _in_order(names: Iterable[str], sources: Mapping[str, _Source]) -> _Sources:
    found: list[tuple[str, _Source, _Source | None]] = []
    later: dict[str, _Source] = {}
    for name in reversed([name for name in dict.fromkeys(names) if name in sources]):
        found.insert(0, (name, sources[name], later.get(_BESIDE.get(name, ""))))
        later[name] = sources[name]
    return found


@functools.lru_cache(maxsize=1024)
def _place(host: str, root: str) -> str:
    """Return the text of a host and of the path at which the application is mounted there.

    One application may be mounted at several places, each with users of its own. The text has no
    space, and its first slash is the path's.
    """
    host, root = (part.replace("%", "%25").replace(" ", "%20") for part in (host, root))
    return host.replace("/", "%2F") + root
