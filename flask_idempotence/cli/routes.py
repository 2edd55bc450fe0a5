"""`flask idempotence routes`: show each route's guards, and the rules in force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import click
from flask import Flask
from flask.cli import with_appcontext

from ..config.settings import NAMESPACE
from ..engine.guard import SAFE_METHODS, ViewGuard
from ..exactly_once.factory import TransactionFactory
from ..guards.key import KeyGuard
from ..guards.whole_app import exempts, speaks_for_itself
from ..guards.wrapping import covers, guards_of
from .config import json_value
from .context import State, as_json, state_of, this_app
from .output import print_json, print_table

_SHARED = {"on_store_error": "on_store_error"}
_RULES: Mapping[str, Mapping[str, str | None]] = {
    "lock": {
        "interval": "lock_interval",
        "message": "lock_message",
        **dict.fromkeys(("only", "ignore", "key", "shared", "wait", "failed")),
        **_SHARED,
    },
    "token": {**dict.fromkeys(("purpose", "restore_on_failure")), **_SHARED},
    "key": {
        "required": "key_required",
        "key": "key_header",
        "key_pattern": "key_pattern",
        "ttl": "key_ttl",
        "wait": "key_wait",
        "on_repeat": "key_on_repeat",
        "guarantee": "key_guarantee",
        "remember": "key_remember",
        **dict.fromkeys(("ignore", "compare", "within")),
        **_SHARED,
    },
}
"""The arguments of each mode's decorator, and the settings in their places."""


class Rule(NamedTuple):
    """A rule in force; its origin is `route`, `setting` or `default`."""

    name: str
    value: object
    origin: str


class Guarded(NamedTuple):
    """A guard of a route; its origin is `route`, or `setting` in whole-app mode."""

    mode: str
    origin: str
    enabled: bool
    rules: list[Rule]


class Route(NamedTuple):
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
            if _is_by_setting(state, view, method):
                whole_app = KeyGuard(only_methods=frozenset({method}))
                guards.insert(0, _guarded(app, state, whole_app, "setting"))
            if guards or method not in SAFE_METHODS:
                is_exempt = exempts(view, method)
                yield Route(method, rule.rule, rule.endpoint, is_exempt, guards)


def _is_by_setting(state: State, view: object, method: str) -> bool:
    config = state.config
    in_whole_app_mode = config.key_all_routes and method in config.key_methods
    return in_whole_app_mode and not speaks_for_itself(view, method)


def _guarded(app: Flask, state: State, guard: ViewGuard, origin: str) -> Guarded:
    rules = [
        rule
        for name, setting in _RULES[guard.mode].items()
        if (rule := _rule(state, guard, name, setting)) is not None
    ]
    return Guarded(guard.mode, origin, state.engine.is_on(app, guard.toggle), rules)


def _rule(state: State, guard: ViewGuard, name: str, setting: str | None) -> Rule | None:
    value = getattr(guard, name)
    if setting is None:
        # Without a setting, an omitted argument is no rule; compare=False is one.
        is_said = value is False if name == "compare" else bool(value)
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
def command(*, as_json: bool, defaults: bool, strict: bool) -> None:
    """Show the guards of each route, and the rules in force.

    The command lists every unsafe method, and the safe methods that have a guard. 'none' marks an
    unguarded method, 'exempt' one behind idempotent.exempt. Guards are listed from the outermost,
    each rule with its origin: the route, a setting or, with --defaults and in JSON, the default.
    """
    state = state_of(this_app())
    routes = sorted(_routes(this_app(), state), key=lambda route: (route.rule, route.method))
    if as_json:
        print_json([_as_json(route) for route in routes])
    else:
        _print(routes, ("route", "setting", "default") if defaults else ("route", "setting"))
    if strict and any(not route.guards and not route.exempt for route in routes):
        raise SystemExit(1)


def _as_json(route: Route) -> dict[str, object]:
    guards = [
        {**guard._asdict(), "rules": [rule._asdict() for rule in guard.rules]}
        for guard in route.guards
    ]
    return {**route._asdict(), "guards": guards}


def _print(routes: list[Route], origins: Sequence[str]) -> None:
    rows, colours = [], []
    for route in routes:
        guards = [(_mode(guard), _rules(guard, origins)) for guard in route.guards]
        for mode, rules in guards or [("exempt" if route.exempt else "none", "")]:
            rows.append((route.method, route.rule, route.endpoint, mode, rules))
            colours.append("yellow" if mode == "none" else "green")
    print_table(("METHOD", "ROUTE", "ENDPOINT", "GUARD", "RULES"), rows, colours)


def _mode(guard: Guarded) -> str:
    by_setting = " (all routes)" if guard.origin == "setting" else ""
    return guard.mode + by_setting + ("" if guard.enabled else " (off)")


def _rules(guard: Guarded, origins: Sequence[str]) -> str:
    parts = []
    for origin in origins:
        rules = [f"{rule.name}={rule.value!r}" for rule in guard.rules if rule.origin == origin]
        if rules:
            parts.append(f"{origin}: {', '.join(rules)}")
    return "; ".join(parts)
