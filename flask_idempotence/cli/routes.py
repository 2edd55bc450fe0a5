"""`flask idempotence routes` and `config`: guards of each route, and settings in force."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from flask import current_app

from ..config.settings import NAMESPACE, SETTINGS
from ..engine.engine import Engine, engine_of
from ..engine.guard import ViewGuard, arguments_of
from ..errors import SAFE_METHODS
from ..exactly_once import TransactionFactory
from ..guards.placement import is_exempt, placed_guards
from ..guards.wrapping import covers, guards_of
from .output import as_json, print_json, print_table

HIDDEN = "(hidden)"

Described = dict[str, Any]  # a method of a route, a guard or a rule, as JSON shows it


def _routes(engine: Engine) -> Iterator[Described]:
    """Find the methods that are unsafe or guarded, with their guards, outermost first."""
    app = engine.services.app
    for rule in app.url_map.iter_rules():
        view = app.view_functions.get(rule.endpoint)
        for method in sorted((rule.methods or set()) - {"HEAD"}):  # comes with GET
            placed = placed_guards(app, engine.config, rule.endpoint, method)
            found = [(each.guard, each.blueprint or "setting") for each in placed]
            found += [(each, "route") for each in guards_of(view, method) if covers(each, method)]
            if found or method not in SAFE_METHODS:
                yield {
                    "method": method,
                    "rule": rule.rule,
                    "endpoint": rule.endpoint,
                    "exempt": is_exempt(app, rule.endpoint, method),
                    "guards": [_guard(engine, guard, origin) for guard, origin in found],
                }


def _guard(engine: Engine, guard: ViewGuard, origin: str) -> Described:
    """Describe a guard; its origin is `route`, a Blueprint's name, or `setting` (whole app)."""
    app = engine.services.app
    is_on = engine.is_on(app, guard.toggle)
    return {
        "mode": guard.mode,
        "origin": origin,
        "enabled": is_on,
        "observed": is_on and engine.observes(app, guard),
        "rules": list(_rules(engine, guard)),
    }


def _rules(engine: Engine, guard: ViewGuard) -> Iterator[Described]:
    """Describe the rules of a guard; their origin is `route`, `setting` or `default`."""
    given = engine.services.app.extensions["idempotence"].given
    for field in arguments_of(guard):
        value, setting, origin = getattr(guard, field.name), field.metadata["setting"], "route"
        if setting is None:
            # Without a setting, an omitted argument is no rule; compare=False is one.
            is_said = value is False if field.name in ("compare", "observe") else bool(value)
            if not is_said and not callable(value):
                continue
        elif value is None:
            origin = "setting" if NAMESPACE + setting.upper() in given else "default"
            value = getattr(engine.config, setting)
        if field.name != "methods":  # each method is a route of its own
            yield {"name": field.name, "value": json_value(value), "origin": origin}


def json_value(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return {name: json_value(item) for name, item in value.items()}
    if value is None or isinstance(value, str | int | float | list):
        return value
    if isinstance(value, TransactionFactory):
        return "a session"
    if callable(value):
        return f"{getattr(value, '__qualname__', type(value).__name__)}()"
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a lazy translation may need a request
        return f"({type(value).__name__})"


@click.command("routes")
@as_json
@click.option("--defaults", is_flag=True, help="Show default rules, too.")
@click.option("--strict", is_flag=True, help="Exit with 1 if an unsafe method has no guard.")
def routes(*, as_json: bool, defaults: bool, strict: bool) -> None:
    """Show the guards of each route, and the rules in force.

    The command lists every unsafe method, and the safe methods that have a guard. 'none' marks an
    unguarded method, 'exempt' one with @exempt. Guards are listed from the outermost,
    each rule with its origin: the route, a setting or, with --defaults and in JSON, the default.
    """
    listed = sorted(
        _routes(engine_of(current_app)), key=lambda route: (route["rule"], route["method"])
    )
    if as_json:
        print_json(listed)
    else:
        origins = ("route", "setting", "default") if defaults else ("route", "setting")
        rows = [row for route in listed for row in _rows(route, origins)]
        print_table(rows, ["yellow" if row["guard"] == "none" else "green" for row in rows])
    if strict and any(not route["guards"] and not route["exempt"] for route in listed):
        raise SystemExit(1)


def _rows(route: Described, origins: Sequence[str]) -> Iterator[Described]:
    place = {"method": route["method"], "route": route["rule"], "endpoint": route["endpoint"]}
    if not route["guards"]:
        yield {**place, "guard": "exempt" if route["exempt"] else "none", "rules": ""}
    for guard in route["guards"]:
        carrier = {"route": "", "setting": " (all routes)"}.get(
            guard["origin"], f" (Blueprint {guard['origin']})"
        )
        state = " (observed)" if guard["observed"] else "" if guard["enabled"] else " (off)"
        said = defaultdict[str, list[str]](list)
        for rule in guard["rules"]:
            said[rule["origin"]].append(f"{rule['name']}={rule['value']!r}")
        rules = [f"{origin}: {', '.join(said[origin])}" for origin in origins if origin in said]
        yield {**place, "guard": f"{guard['mode']}{carrier}{state}", "rules": "; ".join(rules)}


@click.command("config")
@as_json
def config(*, as_json: bool) -> None:
    """Show the settings in force.

    The origin shows which of them were set.

    Secrets are hidden: keys, options of the store, and all of its URI but the scheme.
    """
    state, settings = current_app.extensions["idempotence"], []
    for name, field in SETTINGS.items():
        live = field.metadata["live"]
        value = current_app.config[name] if live else getattr(state.config, field.name)
        is_set = name in state.given or (live and value != field.default)
        shown = json_value(value)
        if is_set and field.metadata["secret"]:
            # A URI's scheme names the kind of store; the rest may hold a password and an address.
            scheme, separator, _ = str(value).partition("://")
            is_uri = name == "IDEMPOTENCE_STORAGE_URI" and separator
            shown = f"{scheme}://{HIDDEN}" if is_uri else HIDDEN
        origin = "set" if is_set else "default"
        settings.append({"name": name, "value": shown, "origin": origin})
    store = type(state.store).__name__
    if as_json:
        print_json({"settings": settings, "store": store})
        return
    rows = []
    for row in settings:
        shown = row["value"] if row["value"] == HIDDEN else repr(row["value"])
        rows.append({"setting": row["name"], "value": shown, "origin": row["origin"]})
    print_table([*rows, {"setting": "(the store in use)", "value": store, "origin": ""}])
