"""The doctor's checks of the application and of how it is served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from werkzeug.middleware.proxy_fix import ProxyFix

from ..config.settings import IDENTITY
from ..guards.checks import faults_when_finished
from ..web.routes import token_url_faults
from .findings import Check, Finding, Patient, error, note, ok, warning

_SHORTEST_SECRET = 16
_A_GOOD_ONE = "what python -c 'import secrets; print(secrets.token_hex())' prints"

_WELL_KNOWN = frozenset(
    {
        "192b9bdd22ab9ed4d12e236c78afcb9a393ec15f71bbf5dc987d54727823bcbf",  # Flask's own example
        "a really really really really long secret key",
        "change me in production",
        "super secret key",
        "this is a secret key",
        "this should be a secret",
        "you will never guess",
        "your secret key here",
    }
)
"""Those of tutorials that are not too short anyway."""

_LISTS_OF_ADDRESSES = frozenset({"forwarded", "x-forwarded-for"})


def check_workers(patient: Patient) -> Iterator[Finding]:
    """Whether several processes each have a store of their own."""
    around = patient.surroundings
    if patient.state.store.shared:
        yield ok("All processes share the store.")
    elif (around.workers or 1) > 1:
        yield error(
            f"The store is the memory of a process, and there are {around.workers} "
            f"({around.told_by}).",
            "The processes do not see each other's claims: a repeat that meets another one runs.",
            "Set IDEMPOTENCE_STORAGE_URI to a server, such as redis://localhost:6379/0.",
        )
    elif around.workers is None and patient.is_at_work:
        yield warning(
            "The store is the memory of a process.",
            "Other processes do not see its claims, and a restart forgets them.",
            "Set IDEMPOTENCE_STORAGE_URI to a server; or if there is one process for good, say "
            "so: --workers 1.",
        )
    else:
        yield ok("The store is the memory of a process, and there is one.")


def check_secret(patient: Patient) -> Iterator[Finding]:
    """Whether the secrets behind hashes and signatures are secret."""
    app, own = patient.app, patient.state.config.hash_key
    secret, fallbacks = app.secret_key, app.config.get("SECRET_KEY_FALLBACKS") or ()
    if not secret and not own:
        yield error(
            "There is no SECRET_KEY.",
            "What is stored is hashed with it, and tokens are signed with it: every guarded "
            "request fails.",
            f"Set SECRET_KEY to {_A_GOOD_ONE}.",
        )
        return
    weak = [
        name
        for name, value in (
            ("SECRET_KEY", secret),
            ("IDEMPOTENCE_HASH_KEY", own),
            *(("SECRET_KEY_FALLBACKS", value) for value in fallbacks),
        )
        if value and _is_weak(value)
    ]
    if not weak:
        yield ok("The secrets are there, and long enough.")
        return
    yield (error if patient.is_at_work else warning)(
        f"{' and '.join(dict.fromkeys(weak))} can be guessed.",
        "Whoever knows it can forge tokens, and find out from the store who sent what.",
        f"Replace it by {_A_GOOD_ONE}. Drop the old one from SECRET_KEY_FALLBACKS, too, as soon "
        "as what was hashed with it has expired.",
    )


def _is_weak(secret: str | bytes) -> bool:
    text = secret.decode("utf-8", "replace") if isinstance(secret, bytes) else secret
    plain = text.lower().replace("-", " ").replace("_", " ").strip(" .!")
    return len(text) < _SHORTEST_SECRET or len(set(text)) < 4 or plain in _WELL_KNOWN


def check_address(patient: Patient) -> Iterator[Finding]:
    """Whether guests are told apart by an address that is theirs, and that they cannot choose."""
    config = patient.state.config
    fixed = _has_proxy_fix(patient.app)
    if "ip" not in config.identity:
        yield ok("Addresses are not asked for.")
    elif config.ip_header is not None:
        yield _of_header(config.ip_header, fixed=fixed)
    elif fixed:
        yield ok("The address is what ProxyFix makes of it.")
    else:
        yield note(
            "The address of a guest is that of the connection.",
            "Behind a reverse proxy that is the proxy's: all guests are one and block each other.",
            "If there is a proxy, wrap app.wsgi_app in werkzeug's ProxyFix, or set "
            "IDEMPOTENCE_IP_HEADER to the header that it overwrites.",
        )


def _of_header(header: str, *, fixed: bool) -> Finding:
    if header.lower() in _LISTS_OF_ADDRESSES:
        return error(
            f"IDEMPOTENCE_IP_HEADER is {header}.",
            "That is a list to which proxies add, and its beginning is written by the client, who "
            "can be a new guest with every request.",
            "Set IDEMPOTENCE_IP_HEADER to None, and wrap app.wsgi_app in werkzeug's ProxyFix.",
        )
    if fixed:
        return warning(
            f"There is ProxyFix, and IDEMPOTENCE_IP_HEADER is {header} besides.",
            "The header wins. If the proxy does not overwrite it, clients choose their address.",
            "Keep one of the two.",
        )
    return note(
        f"The address of a guest is taken from {header}.",
        "Whoever reaches the application directly, or through a proxy that passes the header on, "
        "chooses his address.",
        "Make sure that the proxy overwrites it, and that there is no way around the proxy.",
    )


def _has_proxy_fix(app: Any) -> bool:
    layer = app.wsgi_app
    for _ in range(50):
        if layer is None or isinstance(layer, ProxyFix):
            return layer is not None
        inner = (getattr(layer, name, None) for name in ("app", "wsgi_app", "application"))
        # The innermost is a bound method of the application itself.
        layer = next((each for each in inner if each is not None and each is not app), None)
    return False


def check_identity(patient: Patient) -> Iterator[Finding]:
    """Whether senders are told apart, and whether a repeat comes from the sender of the first."""
    config, app = patient.state.config, patient.app
    missing = [name for name in IDENTITY if name not in (*config.identity, "ip")]
    if patient.state.engine.hooks.load_identity is not None:
        yield ok("The application loads the identity itself.")
    elif (login := _login_that_does_not_count(app, config.identity)) is not None:
        yield warning(
            f"{login} is set up, and no source of identity reads it.",
            "Its users are told apart by address only: those behind one address are one sender, "
            "and the same key gets them the same response.",
            f"Add {' and '.join(map(repr, missing))} to IDEMPOTENCE_IDENTITY.",
        )
    elif _tokens_rotate(app, config.identity):
        yield warning(
            "Flask-JWT-Extended is set up, and only the token itself is a source of identity.",
            "An access token is exchanged when it expires: a repeat with the new one looks like "
            "another sender's, and runs again.",
            "Add 'user' to IDEMPOTENCE_IDENTITY, which is the user of the token.",
        )
    elif missing or not (config.identity_headers or config.identity_cookies):
        yield note(
            f"The sources of identity are {', '.join(config.identity) or 'none'}; the settings "
            "leave others out.",
            "Users whom only those tell apart are one sender behind one address, and the same key "
            "gets them the same response.",
            "Leave the IDEMPOTENCE_IDENTITY settings at their defaults, unless you know why.",
        )
    elif not config.identity_host:
        yield note(
            "IDEMPOTENCE_IDENTITY_HOST is off.",
            "User 1 of one host is user 1 of every other.",
            "Switch it on, unless all hosts have the same users.",
        )
    else:
        yield ok(f"The sources of identity are {', '.join(config.identity) or 'none'}.")


def _login_that_does_not_count(app: Any, sources: tuple[str, ...]) -> str | None:
    if hasattr(app, "login_manager") and not {"user", "session"} & set(sources):
        return "Flask-Login"
    if "flask-jwt-extended" in app.extensions and "user" not in sources:
        locations = app.config.get("JWT_TOKEN_LOCATION", "headers")
        for location, source in (("headers", "authorization"), ("cookies", "credentials")):
            if location in locations and source not in sources:
                return "Flask-JWT-Extended"
    return None


def _tokens_rotate(app: Any, sources: tuple[str, ...]) -> bool:
    if "flask-jwt-extended" not in app.extensions or "user" in sources:
        return False
    return app.config.get("JWT_ACCESS_TOKEN_EXPIRES") is not False


def check_whole_app(patient: Patient) -> Iterator[Finding]:
    """Whether replays of the whole application are seen by those only who may see them."""
    if not patient.state.config.key_all_routes:
        yield ok("The guards stand at their views.")
    elif any(patient.app.before_request_funcs.values()):
        yield ok("The whole application is guarded, and has before_request functions.")
    elif patient.state.engine.hooks.load_identity is not None:
        yield ok("The whole application is guarded, and loads the identity itself.")
    else:
        yield warning(
            "IDEMPOTENCE_KEY_ALL_ROUTES is on, and nothing is checked in before_request.",
            "This guard stands outside the views' own login checks: whoever shows the identity "
            "and the key of a first request gets its response, signed in or not.",
            "Check who may do what in before_request, or load the identity from what proves it.",
        )


def check_threads(patient: Patient) -> Iterator[Finding]:
    """Whether leases can be renewed while views run."""
    around = patient.surroundings
    if not around.uwsgi:
        yield ok("No settings of uWSGI, which would have to allow threads.")
    elif around.uwsgi_threads:
        yield ok("uWSGI allows threads.")
    else:
        yield error(
            "uWSGI does not run threads.",
            "Leases are renewed by a thread. Without it, the claim of a slow view ends while the "
            "view runs.",
            "Set enable-threads = true (and lazy-apps = true, unless the workers fork first).",
        )


def check_views(patient: Patient) -> Iterator[Finding]:
    """Whether the guards stand where they guard something."""
    config = patient.state.config
    faults = [*faults_when_finished(patient.app, config), *token_url_faults(patient.app)]
    for text in dict.fromkeys(fault.text for fault in faults):
        names = ", ".join(repr(fault.endpoint) for fault in faults if fault.text == text)
        yield error(
            text,
            f"Every request to {names} is answered 500.",
            "Change the view or the setting as described.",
        )
    if not faults:
        yield ok("The guards stand where they guard something.")


APP_CHECKS: dict[str, Check] = {
    "workers": check_workers,
    "threads": check_threads,
    "secret": check_secret,
    "address": check_address,
    "identity": check_identity,
    "whole app": check_whole_app,
    "views": check_views,
}
"""By name, in their order."""
