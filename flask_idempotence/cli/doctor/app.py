"""The doctor's checks of the application and its deployment."""

from __future__ import annotations

from collections import defaultdict

from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

from ...config.settings import IDENTITY
from ...guards.placement import faults_of, placed_guards
from ...guards.wrapping import covers, guard_at, wrapped_by
from ...web.routes import token_url_faults
from .store import Checks, DoctorContext, Finding, error, note, ok, warning

_SHORTEST_SECRET = 16
_GOOD_VALUE = "the output of python -c 'import secrets; print(secrets.token_hex())'"


def workers(context: DoctorContext) -> Finding:
    if context.engine.store.shared:
        return ok("All processes share the store.")
    several = (context.workers or 1) > 1
    if not several and (context.workers or not context.in_production):
        return ok("The store is the memory of the only process.")
    return (error if several else warning)(
        "The store is the memory of a process"
        + (f", and {context.workers} serve the application." if several else "."),
        "Processes do not see each other's claims: a repeat that reaches another one runs. A "
        "restart loses them.",
        "Set IDEMPOTENCE_STORAGE_URI to a server, such as redis://localhost:6379/0, or pass "
        "--workers 1 if there is only one.",
    )


def secret(context: DoctorContext) -> Finding:
    app, own = context.app, context.engine.config.hash_key
    if not app.secret_key and not own:
        return error(
            "SECRET_KEY is not set.",
            "It is the key of stored hashes and signed tokens: every guarded request fails.",
            f"Set SECRET_KEY to {_GOOD_VALUE}.",
        )
    secrets = [("SECRET_KEY", app.secret_key), ("IDEMPOTENCE_HASH_KEY", own)]
    fallbacks = app.config.get("SECRET_KEY_FALLBACKS") or ()
    secrets += [("SECRET_KEY_FALLBACKS", secret) for secret in fallbacks]
    weak = [
        name
        for name, secret in secrets
        if secret and (len(secret) < _SHORTEST_SECRET or len(set(secret)) < 4)
    ]
    if not weak:
        return ok("The secrets are set and long enough.")
    return (error if context.in_production else warning)(
        f"{' and '.join(dict.fromkeys(weak))} can be guessed.",
        "Anyone who guesses it can forge tokens, and find the sender of a stored hash.",
        f"Replace it with {_GOOD_VALUE}. Remove the old one from SECRET_KEY_FALLBACKS once all "
        "hashes made with it have expired.",
    )


def address(context: DoctorContext) -> Finding:
    header, fixed = context.engine.config.ip_header, _has_proxy_fix(context.app)
    if "ip" not in context.engine.config.identity:
        return ok("Addresses are no source of identity.")
    if header is None and fixed:
        return ok("ProxyFix sets the address of a guest.")
    if header is None:
        return note(
            "The address of a guest is that of the connection.",
            "Behind a reverse proxy it is the proxy's: guests count as one and block each other.",
            "If there is a proxy, wrap app.wsgi_app in werkzeug's ProxyFix, or set "
            "IDEMPOTENCE_IP_HEADER to the header that it overwrites.",
        )
    if header.lower() in ("forwarded", "x-forwarded-for"):
        return error(
            f"IDEMPOTENCE_IP_HEADER is {header}.",
            "Proxies append to this list; a client that forges its beginning is a new guest.",
            "Set IDEMPOTENCE_IP_HEADER to None, and wrap app.wsgi_app in werkzeug's ProxyFix.",
        )
    return (warning if fixed else note)(
        f"The address of a guest is taken from {header}{', in spite of ProxyFix' * fixed}.",
        "Unless a proxy overwrites that header, clients choose their address.",
        "Make sure that the proxy overwrites it, and that no request bypasses the proxy. Keep one "
        "of the header and ProxyFix.",
    )


def _has_proxy_fix(app: Flask) -> bool:
    layer: object = app.wsgi_app
    for _ in range(50):  # they may be a ring
        if isinstance(layer, ProxyFix):
            return True
        inner = (getattr(layer, name, None) for name in ("app", "wsgi_app", "application"))
        layer = next((each for each in inner if each is not None and each is not app), None)
    return False


def identity(context: DoctorContext) -> Finding:
    config, app = context.engine.config, context.app
    if context.engine.services.callbacks.load_identity is not None:
        return ok("The application loads the identity itself.")
    has_logins = hasattr(app, "login_manager") and "session" not in config.identity
    if "user" not in config.identity and (has_logins or "flask-jwt-extended" in app.extensions):
        return warning(
            f"{'Flask-Login' if has_logins else 'Flask-JWT-Extended'} is set up, and 'user' is no "
            "source of identity.",
            "Its users behind one address count as one, or a user's next token as another sender.",
            "Add 'user' to IDEMPOTENCE_IDENTITY.",
        )
    sources = ", ".join(config.identity) or "none"
    has_lists = config.identity_headers or config.identity_cookies
    if not has_lists or not {*IDENTITY} <= {*config.identity, "ip"}:
        return note(
            f"The sources of identity are {sources}; the settings leave others out.",
            "Users whom only the omitted ones distinguish count as one behind one address.",
            "Leave the IDEMPOTENCE_IDENTITY settings at their defaults, unless you know why.",
        )
    if not config.identity_host:
        return note(
            "IDEMPOTENCE_IDENTITY_HOST is off.",
            "User 1 of one host is user 1 of every other.",
            "Switch it on, unless all hosts have the same users.",
        )
    return ok(f"The sources of identity are {sources}.")


def whole_app(context: DoctorContext) -> Finding:
    if not context.engine.config.key_all_routes:
        return ok("Whole-app mode is off.")
    has_loader = context.engine.services.callbacks.load_identity is not None
    if has_loader or any(context.app.before_request_funcs.values()):
        return ok("A before_request function or an identity_loader runs before each replay.")
    return warning(
        "IDEMPOTENCE_KEY_ALL_ROUTES is on, and nothing is checked in before_request.",
        "Replays bypass the views' login checks: the first request's identity and key suffice.",
        "Check permissions in before_request, or in an identity_loader.",
    )


def logins(context: DoctorContext) -> Finding:
    app, inside = context.app, dict[str, None]()
    for rule in app.url_map.iter_rules():
        for method in rule.methods or ():
            is_inside = bool(placed_guards(app, context.engine.config, rule.endpoint, method))
            for layer in wrapped_by(app.view_functions.get(rule.endpoint), method):
                if (guard := guard_at(layer)) is not None:
                    is_inside = is_inside or covers(guard, method)
                elif is_inside and _is_login_check(layer):
                    inside[repr(rule.endpoint)] = None
    if not inside:
        return ok("No decorator of Flask-Login is inside a guard.")
    return warning(
        f"A guard is around the login check of Flask-Login: {', '.join(inside)}.",
        "The redirect to the login page counts as the view's response: a key remembers it for "
        "repeats, a lock holds its interval, and a token is spent.",
        "Put @login_required and @fresh_login_required above the guard; in whole-app mode, above "
        "an @idempotent of the view's own.",
    )


def _is_login_check(layer: object) -> bool:
    # functools.wraps copies names, but not the globals of the decorator's module.
    return getattr(layer, "__globals__", {}).get("__name__") == "flask_login.utils"


def observe(context: DoctorContext) -> Finding:
    if not context.engine.observes(context.app):
        return ok("IDEMPOTENCE_OBSERVE is off.")
    return note(
        "IDEMPOTENCE_OBSERVE is on: nothing is enforced, except on routes with observe=False.",
        "Repeats run again. What the guards would have done is counted and logged.",
        "Read idempotence_observed_total by route, and enforce route by route.",
    )


def views(context: DoctorContext) -> list[Finding]:
    app, engine, endpoints = context.app, context.engine, defaultdict[str, list[str]](list)
    for fault in *faults_of(app, engine.config, engine.store), *token_url_faults(app):
        endpoints[fault.text].append(repr(fault.endpoint))
    remedy = "Change the view or the setting as described."
    return [
        error(text, f"Every request to {', '.join(names)} gets 500.", remedy)
        for text, names in endpoints.items()
    ] or [ok("Every guard takes effect.")]


_CHECKS = (workers, secret, address, identity, whole_app, logins, observe, views)
APP_CHECKS: Checks = ((DoctorContext, _CHECKS),)
