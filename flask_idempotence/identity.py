"""Who is asking."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flask import Flask

from .proxies import session_with_content

if TYPE_CHECKING:
    from flask import Request

    from .config import Config
    from .hooks import Hooks

_Source = Callable[[Flask, "Request"], "str | None"]

_STABLE_SCHEMES = frozenset({"basic", "bearer"})
"""Digest credentials and request signatures change with every request, so a repeat would not be
recognised by them."""


class Identities:
    """Finds out who sent a request, by the application's sources in their order.

    Args:
        config: the settings.
        hooks: hold the application's own source, which is asked first; None from it asks the next.
    """

    def __init__(self, config: Config, hooks: Hooks) -> None:
        self._hooks = hooks
        self._header = config.ip_header
        own: dict[str, _Source] = {
            "session": _session,
            "authorization": _authorization,
            "ip": self._address,
        }
        self._sources = [own[name] for name in config.identity]
        of_keys = {**own, "authorization": _any_authorization}
        self._sources_of_keys = [of_keys[name] for name in config.identity]
        self._binding = [own[name] for name in config.identity if name != "ip"]

    def of(self, app: Flask, request: Request) -> str:
        """Return the identity of the request's sender; empty where no source knows one."""
        return self._identity(app, request, self._sources)

    def of_key(self, app: Flask, request: Request) -> str:
        """Return the same for a key, whose first response must not go to anybody else.

        Credentials of an unknown scheme stand for themselves here. If they change, a repeat is
        not recognised; if they were passed over, users behind one address would be one.
        """
        return self._identity(app, request, self._sources_of_keys)

    def _identity(self, app: Flask, request: Request, sources: list[_Source]) -> str:
        identity = _at_host(app, request, self._ask(app, request, sources) or "")
        # One application may be mounted at several places, each with users of its own.
        return f"{request.script_root} {identity}" if request.script_root else identity

    def bearer_of(self, app: Flask, request: Request) -> str:
        """Return whom a token is bound to: a signed-in user, or nobody (empty).

        An address is no one to bind to: a guest's changes with the network.
        """
        bearer = self._ask(app, request, self._binding)
        return _at_host(app, request, bearer) if bearer is not None else ""

    def _ask(self, app: Flask, request: Request, sources: list[_Source]) -> str | None:
        load = self._hooks.load_identity
        loaded = load() if load is not None else None
        if loaded is not None:
            return f"loader:{loaded}"
        for source in sources:
            identity = source(app, request)
            if identity is not None:
                return identity
        return None

    def _address(self, app: Flask, request: Request) -> str | None:
        del app
        named = request.headers.get(self._header, "").strip() if self._header else ""
        address = named or request.remote_addr
        return f"ip:{address}" if address else None


def _session(app: Flask, request: Request) -> str | None:
    del request
    if hasattr(app, "login_manager"):
        from flask_login import current_user  # noqa: PLC0415 - only where it is set up

        user: Any = current_user
        return f"session:{user.get_id()}" if user.is_authenticated else None
    session = session_with_content()
    if session is None:
        return None
    for name in ("user_id", "_user_id"):
        signed_in = session.get(name)
        if signed_in is not None:
            return f"session:{signed_in}"
    return None


def _authorization(app: Flask, request: Request) -> str | None:
    del app
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() not in _STABLE_SCHEMES or not credentials.strip():
        return None
    return f"authorization:{scheme.lower()} {credentials.strip()}"


def _any_authorization(app: Flask, request: Request) -> str | None:
    stable = _authorization(app, request)
    if stable is not None:
        return stable
    whole = request.headers.get("Authorization", "").strip()
    return f"authorization:{whole}" if whole else None


def _at_host(app: Flask, request: Request, identity: str) -> str:
    if app.url_map.host_matching or app.subdomain_matching:
        return f"{request.host.lower()} {identity}"
    return identity
