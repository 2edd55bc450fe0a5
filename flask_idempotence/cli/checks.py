"""The checks of the doctor: the store and its servers, then the application."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

from ..config.settings import CLOCK_SKEW, IDENTITY
from ..engine.engine import Engine
from ..guards.placement import faults_of, placed_guards
from ..guards.wrapping import covers, guard_at, wrapped_by
from ..stores.facts import DatabaseFacts, Facts, ServerFacts
from ..web.routes import token_url_faults
from .causes import Cause

_NOTABLE_SKEW = 5.0  # seconds
_LITTLE_ROOM, _NO_ROOM = 0.75, 0.95  # parts of the memory in use

_SHORTEST_SECRET = 16
_LOGINS = "flask_login.utils"  # the module of @login_required
_GOOD_VALUE = "the output of python -c 'import secrets; print(secrets.token_hex())'"


class Finding(NamedTuple):
    """Result of one check; reason and remedy are empty where it is ok.

    The severity is `ok`, `note` (for a person to judge), `warning` or `error`.
    """

    severity: str
    check: str
    finding: str
    reason: str = ""
    remedy: str = ""


@dataclass(slots=True)
class DoctorContext:
    app: Flask
    engine: Engine
    workers: int | None = None  # how many processes serve it; None for unknown
    servers: Sequence[Facts] = ()
    probe_time: float = 0.0  # seconds in which the store granted a claim and took it back
    fault: Cause | None = None  # why it did not

    @property
    def in_production(self) -> bool:
        return not (self.app.debug or self.app.testing)


# Checks examine the deployment, or each server of a kind; a check has the name of its function.
Checks = tuple[tuple[type, tuple[Callable[..., Finding | list[Finding] | None], ...]], ...]

ok = partial(Finding, "ok", "")
note = partial(Finding, "note", "")
warning = partial(Finding, "warning", "")
error = partial(Finding, "error", "")


def store(context: DoctorContext) -> Finding | None:
    if context.fault is None:
        kind, took = type(context.engine.store).__name__, context.probe_time * 1000
        return ok(f"{kind} granted and released a claim, in {took:.1f} ms.")
    if any(isinstance(facts, DatabaseFacts) and facts.missing for facts in context.servers):
        return None  # the check of the table has found that
    return error(
        context.fault.sentence,
        "Guarded requests are refused or run unguarded, as IDEMPOTENCE_ON_STORE_ERROR says.",
        context.fault.remedy,
    )


def version(facts: Facts) -> Finding:
    if facts.version is None:
        return _unknown("version", "Check it on the server.")
    found, oldest = (".".join(map(str, each)) for each in (facts.version, facts.oldest))
    if facts.version >= facts.oldest:
        return ok(f"{facts.product} {found}.")
    return error(
        f"{facts.product} {found} is older than {oldest}.",
        "Older servers are not tested.",
        f"Upgrade to {facts.product} {oldest} or later.",
    )


def eviction(facts: ServerFacts) -> Finding:
    if facts.eviction is None:
        return _unknown("eviction policy", "It must be noeviction.")
    if facts.eviction == "noeviction":
        return ok("maxmemory-policy is noeviction.")
    limited = facts.memory_limit != 0
    return (error if limited else warning)(
        f"maxmemory-policy is {facts.eviction}{'' if limited else ', though without maxmemory'}.",
        "A server with a full memory evicts live claims, and then lets repeats through.",
        "Set maxmemory-policy noeviction, or give the guards a server of their own.",
    )


def persistence(facts: ServerFacts) -> Finding:
    if facts.logs_writes is None:
        return _unknown("persistence", "It should have appendonly.")
    if not facts.logs_writes:
        return warning(
            "appendonly is off.",
            "A restart loses claims and remembered responses, and their repeats run again.",
            "Set appendonly yes.",
        )
    if facts.log_reaches_disk == "no":
        return warning(
            "appendfsync is no: the operating system decides when to write.",
            "A crash of the machine loses the claims of about the last half minute.",
            "Set appendfsync everysec, or always.",
        )
    return ok(f"appendonly is on, and appendfsync is {facts.log_reaches_disk}.")


def clock(facts: Facts) -> Finding:
    if facts.clock_ahead is None:
        if isinstance(facts, DatabaseFacts):
            return ok("The database's clock is this machine's.")
        return _unknown("clock", "Run a time service (NTP) on all machines.")
    difference = abs(facts.clock_ahead)
    found = f"This machine's clock and the server's differ by {difference:.1f} s."
    if difference < _NOTABLE_SKEW:
        return ok(found)
    return (error if difference > CLOCK_SKEW else warning)(
        found,
        f"The clocks that issue and take a token may differ by {CLOCK_SKEW} s at most.",
        "Run a time service (NTP) on all machines.",
    )


def memory(facts: ServerFacts) -> Finding:
    limit = facts.memory_limit or facts.memory_of_machine
    if facts.memory_used is None or not limit:
        return _unknown("memory", "Monitor it.")
    used = facts.memory_used / limit
    of = "maxmemory" if facts.memory_limit else "its machine's memory"
    found = f"The server uses {used:.0%} of {of}."
    if used < _LITTLE_ROOM:
        return ok(found)
    return (error if used >= _NO_ROOM else warning)(
        found,
        "A full server takes no claims: guarded requests are refused, or run unguarded.",
        "Raise maxmemory, or lower IDEMPOTENCE_KEY_TTL and IDEMPOTENCE_KEY_MAX_BODY. 'flask "
        "idempotence stats' shows the size of each endpoint's entries.",
    )


def replicas(facts: ServerFacts) -> Finding:
    have, wanted = facts.replicas, facts.replicas_wanted
    if have is None:
        return _unknown("number of replicas", "Check it on the server.")
    found = f"{have} replicas follow the server, and wait_replicas is {wanted}."
    if have == wanted:
        return ok(found)
    if have < wanted:
        return error(
            found,
            "Every claim waits for the missing replicas, and then counts as unacknowledged.",
            "Start the replicas, or lower wait_replicas.",
        )
    return note(
        found,
        "After a failover the latest claims may be missing, and their repeats run again.",
        "If that matters, set wait_replicas to the number of replicas that may take over.",
    )


def table(facts: DatabaseFacts) -> Finding:
    if not facts.missing:
        return ok("The table exists, with all its columns.")
    return error(
        f"Missing in the database: {', '.join(facts.missing)}.",
        "Without its table the store takes no claim: requests are refused, or run unguarded.",
        "Run 'flask idempotence init-db', or your migration.",
    )


def durability(facts: DatabaseFacts) -> Finding:
    if facts.survives_crash:
        return ok(f"Commits survive a crash: {facts.durability}.")
    return warning(
        f"A crash of the machine may lose the last commits: {facts.durability}.",
        "Claims and remembered responses that are lost let their repeats run again.",
        "Set fsync and synchronous_commit to on; on MySQL, innodb_flush_log_at_trx_commit and "
        "sync_binlog to 1; for SQLite, PRAGMA synchronous to FULL.",
    )


def pooler(facts: DatabaseFacts) -> Finding | None:
    """Check that no statements are prepared under names that a pooler may not know."""
    if facts.pooled is None:
        return None
    if not (facts.pooled and facts.prepares):
        return ok("No connection pooler gets prepared statements.")
    return warning(
        "The application's connections prepare statements under names, behind a pooler.",
        "PgBouncer before 1.21, or without max_prepared_statements, loses them in transaction "
        "mode: the application's statements and the commits of within= fail, the store's do not.",
        'Pass connect_args={"prepare_threshold": None} to create_engine, or have the pooler '
        "support prepared statements.",
    )


def _unknown(name: str, remedy: str) -> Finding:
    reason = "The server does not show it (hosted servers often hide it)."
    return note(f"The server's {name} is unknown.", reason, remedy)


STORE_CHECKS: Checks = (
    (DoctorContext, (store,)),
    (Facts, (version,)),
    (DatabaseFacts, (table, durability, pooler)),
    (ServerFacts, (eviction, persistence)),
    (Facts, (clock,)),
    (ServerFacts, (memory, replicas)),
)


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
                # functools.wraps copies names, but not the globals of the decorator's module.
                elif is_inside and getattr(layer, "__globals__", {}).get("__name__") == _LOGINS:
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


APP_CHECKS: Checks = (
    (DoctorContext, (workers, secret, address, identity, whole_app, logins, observe, views)),
)
