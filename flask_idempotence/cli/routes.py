"""`flask idempotence routes` and `config`: guards of each route, and settings in force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import click
from flask import Flask
from flask.cli import with_appcontext

from ..config.settings import NAMESPACE, SETTINGS
from ..engine.guard import SAFE_METHODS, ViewGuard, arguments_of
from ..exactly_once import TransactionFactory
from ..guards.placement import guards_to_come, is_exempt
from ..guards.wrapping import covers, guards_of
from .context import State, as_json, state_of, this_app
from .output import print_json, print_table

HIDDEN = "(hidden)"


@dataclass(frozen=True)
class Rule:
    """A rule in force; its origin is `route`, `setting` or `default`."""

    name: str
    value: object
    origin: str


@dataclass(frozen=True)
class Guarded:
    """A guard of a route; its origin is `route`, a Blueprint's name, or `setting` (whole app)."""

    mode: str
    origin: str
    enabled: bool
    observed: bool
    rules: list[Rule]


@dataclass(frozen=True)
class Route:
    """A method of a route, with its guards, outermost first."""

    method: str
    rule: str
    endpoint: str
    exempt: bool
    guards: list[Guarded]


def _routes(app: Flask, state: State) -> Iterator[Route]:
    """Find the methods that are unsafe or guarded."""
    for rule in app.url_map.iter_rules():
        view = app.view_functions.get(rule.endpoint)
        for method in sorted((rule.methods or set()) - {"HEAD"}):  # comes with GET
            guards = [
                _guarded(app, state, guard, "route")
                for guard in guards_of(view, method)
                if covers(guard, method)
            ]
            guards[:0] = [
                _guarded(app, state, coming.guard, coming.blueprint or "setting")
                for coming in guards_to_come(app, state.config, rule.endpoint, method)
            ]
            if guards or method not in SAFE_METHODS:
                exempt = is_exempt(app, rule.endpoint, method)
                yield Route(method, rule.rule, rule.endpoint, exempt, guards)


def _guarded(app: Flask, state: State, guard: ViewGuard, origin: str) -> Guarded:
    rules = [
        rule
        for field in arguments_of(guard)
        if field.name != "methods"  # each method is a route of its own
        and (rule := _rule(state, guard, field.name, field.metadata["setting"])) is not None
    ]
    engine = state.engine
    is_on, is_observed = engine.is_on(app, guard.toggle), engine.observes(app, guard)
    return Guarded(guard.mode, origin, is_on, is_on and is_observed, rules)


def _rule(state: State, guard: ViewGuard, name: str, setting: str | None) -> Rule | None:
    value = getattr(guard, name)
    if setting is None:
        # Without a setting, an omitted argument is no rule; compare=False is one.
        is_said = value is False if name in ("compare", "observe") else bool(value)
        return Rule(name, _shown(value), "route") if is_said or callable(value) else None
    if value is not None:
        return Rule(name, _shown(value), "route")
    is_set = NAMESPACE + setting.upper() in state.given
    origin = "setting" if is_set else "default"
    return Rule(name, json_value(getattr(state.config, setting)), origin)


def _shown(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, TransactionFactory):
        return "a session"
    if callable(value):
        return f"{getattr(value, '__qualname__', type(value).__name__)}()"
    return json_value(value)


@click.command("routes")
@as_json
@click.option("--defaults", is_flag=True, help="Show default rules, too.")
@click.option("--strict", is_flag=True, help="Exit with 1 if an unsafe method has no guard.")
@with_appcontext
def routes(*, as_json: bool, defaults: bool, strict: bool) -> None:
    """Show the guards of each route, and the rules in force.

    The command lists every unsafe method, and the safe methods that have a guard. 'none' marks an
    unguarded method, 'exempt' one with @exempt. Guards are listed from the outermost,
    each rule with its origin: the route, a setting or, with --defaults and in JSON, the default.
    """
    found = _routes(this_app(), state_of(this_app()))
    listed = sorted(found, key=lambda route: (route.rule, route.method))
    if as_json:
        print_json([asdict(route) for route in listed])
    else:
        _print(listed, ("route", "setting", "default") if defaults else ("route", "setting"))
    if strict and any(not route.guards and not route.exempt for route in listed):
        raise SystemExit(1)


def _print(routes: list[Route], origins: Sequence[str]) -> None:
    rows, colours = [], []
    for route in routes:
        guards = []
        for guard in route.guards:
            place = {"route": "", "setting": " (all routes)"}.get(
                guard.origin, f" (Blueprint {guard.origin})"
            )
            state = " (observed)" if guard.observed else "" if guard.enabled else " (off)"
            mode = guard.mode + place + state
            guards.append((mode, _rules(guard, origins)))
        for mode, rules in guards or [("exempt" if route.exempt else "none", "")]:
            rows.append((route.method, route.rule, route.endpoint, mode, rules))
            colours.append("yellow" if mode == "none" else "green")
    print_table(("METHOD", "ROUTE", "ENDPOINT", "GUARD", "RULES"), rows, colours)


def _rules(guard: Guarded, origins: Sequence[str]) -> str:
    parts = []
    for origin in origins:
        rules = [f"{rule.name}={rule.value!r}" for rule in guard.rules if rule.origin == origin]
        if rules:
            parts.append(f"{origin}: {', '.join(rules)}")
    return "; ".join(parts)


def json_value(value: object) -> object:
    """Return a value as JSON can hold it."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return {name: json_value(item) for name, item in value.items()}
    if value is None or isinstance(value, str | int | float | list):
        return value
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a lazy translation may need a request
        return f"({type(value).__name__})"


@click.command("config")
@as_json
@with_appcontext
def config(*, as_json: bool) -> None:
    """Show the settings in force.

    The origin shows which of them were set.

    Secrets are hidden: keys, options of the store, and all of its URI but the scheme.
    """
    state, settings = state_of(this_app()), []
    for name, field in SETTINGS.items():
        live = field.metadata["live"]
        value = this_app().config[name] if live else getattr(state.config, field.name)
        is_set = name in state.given or (live and value != field.default)
        shown = json_value(value)
        if is_set and field.metadata["secret"]:
            # A URI's scheme names the kind of store; the rest may hold a password and an address.
            scheme, separator, _ = str(value).partition("://")
            is_uri = name == "IDEMPOTENCE_STORAGE_URI" and separator
            shown = f"{scheme}://{HIDDEN}" if is_uri else HIDDEN
        settings.append((name, shown, "set" if is_set else "default"))
    store = type(state.store).__name__
    if as_json:
        named = [dict(zip(("name", "value", "origin"), row, strict=True)) for row in settings]
        print_json({"settings": named, "store": store})
        return
    rows = [(name, v if v == HIDDEN else repr(v), origin) for name, v, origin in settings]
    print_table(("SETTING", "VALUE", "ORIGIN"), [*rows, ("(the store in use)", store, "")])
