"""The guards of an application: those that the first request puts around views, and checks of all.

The first request puts on those of Blueprints, and of whole-app key mode.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple, TypeVar

from flask import Blueprint, Flask, request

from ..config.settings import Config
from ..engine.engine import engine_of
from ..engine.guard import Claim, Guard, ViewGuard, arguments_of
from ..engine.observing import ERROR
from ..errors import NEEDS_DATABASE, ConfigurationError
from ..exactly_once import takes_completions
from ..stores.base import Store
from .key import KeyGuard
from .lock import METHODS
from .wrapping import (
    CARRIED,
    GUARDED,
    HAS_SERVED,
    covers,
    guard_at,
    guards_and_subjects,
    guards_of,
    has_own_mark,
    put_behind,
    wrapped_by,
)

_logger = logging.getLogger("flask_idempotence")

V = TypeVar("V")

_EXEMPT = "__idempotence_exempt__"

# What is exempt and takes no attribute, such as a bound method, of which each use is another.
_unmarkable: list[object] = []


def exempt(view: V) -> V:
    """Leave a view out of whole-app mode (`IDEMPOTENCE_KEY_ALL_ROUTES`) and of Blueprints' guards.

    `flask idempotence routes --strict` takes it as unguarded on purpose.

    Args:
        view: a view function, a class-based view or one of its methods; or a Blueprint, for all
            of its views. It works above and below the route decorator.

    Returns:
        The view or Blueprint itself.

    Raises:
        ConfigurationError: it is something else.
    """
    if isinstance(view, Flask) or not (isinstance(view, Blueprint) or callable(view)):
        raise ConfigurationError(
            "exempt takes a view function, a class-based view, one of its methods or a Blueprint, "
            f"not a {type(view).__name__}."
        )
    try:
        setattr(view, _EXEMPT, view)
    except (AttributeError, TypeError):
        if not _has_mark(view):
            _unmarkable.append(view)
    return view


def _has_mark(layer: object) -> bool:
    return has_own_mark(layer, _EXEMPT) or layer in _unmarkable


class Fault(NamedTuple):
    """A promise of an endpoint that cannot be kept, with the remedy."""

    endpoint: str
    text: str
    toggle: str = ""  # the setting that lets the view run all the same where it is off


class Placed(NamedTuple):
    """A guard that the first request puts around a view, and its Blueprint, if one carries it."""

    guard: ViewGuard
    blueprint: str | None


def placed_guards(app: Flask, config: Config, endpoint: str, method: str) -> list[Placed]:
    """Return the guards that the first request puts around a view, outermost first.

    Of each mode, that of the nearest Blueprint or else of the whole application, unless the view
    has a guard of this mode itself.
    """
    view = app.view_functions.get(endpoint)
    if view is None or any(map(_has_mark, wrapped_by(view, method))):
        return []
    found: dict[str, Placed | None] = dict.fromkeys(
        guard.mode for guard in guards_of(view, method)
    )
    for name in _blueprints_of(app, endpoint):
        blueprint = app.blueprints[name]
        for mode, guard in vars(blueprint).get(CARRIED, {}).items():
            if covers(guard, method):
                found.setdefault(mode, Placed(guard, name))
        if has_own_mark(blueprint, _EXEMPT):
            break
    else:
        if config.key_all_routes and method in config.key_methods:
            found.setdefault(KeyGuard.mode, Placed(KeyGuard(), None))
    return sorted(filter(None, found.values()), key=lambda placed: placed.guard.place)


def is_exempt(app: Flask, endpoint: str, method: str) -> bool:
    blueprints = [app.blueprints[name] for name in _blueprints_of(app, endpoint)]
    places = [*wrapped_by(app.view_functions.get(endpoint), method), *blueprints]
    return any(map(_has_mark, places))


def _blueprints_of(app: Flask, endpoint: str) -> Iterator[str]:
    """Return the names of an endpoint's Blueprints, the nearest first."""
    name = endpoint
    while name := name.rpartition(".")[0]:
        if name in app.blueprints:
            yield name


def place_guards(app: Flask, config: Config) -> Iterator[Fault]:
    """Put these guards around the views; find those that cannot be kept."""
    places: dict[tuple[str, str], tuple[Placed, set[str]]] = {}
    for endpoint, _, method in _served(app):
        for placed in placed_guards(app, config, endpoint, method):
            places.setdefault((endpoint, placed.guard.mode), (placed, set()))[1].add(method)
    unlimited = {rule.endpoint for rule in app.url_map.iter_rules() if rule.methods is None}
    for blueprint in app.blueprints.values():
        setattr(blueprint, HAS_SERVED, True)
    views: dict[str, Any] = app.view_functions
    innermost_first = sorted(places.items(), key=lambda place: -place[1][0].guard.place)
    for (endpoint, _), (placed, methods) in innermost_first:
        guard = copy(placed.guard)
        guard.placed_by = (
            f"the Blueprint {placed.blueprint!r}"
            if placed.blueprint
            else "IDEMPOTENCE_KEY_ALL_ROUTES"
        )
        if placed.blueprint is None or endpoint not in unlimited:
            guard.only_methods = frozenset(methods)
        try:
            guard.check(endpoint, config)
            views[endpoint] = put_behind(guard, views[endpoint])
        except ConfigurationError as error:
            yield Fault(endpoint, str(error))


def close_endpoint(app: Flask, fault: Fault) -> None:
    """Answer every request to a faulty endpoint with a 500, and say so in the log.

    Its view must not run unguarded, unless it is only observed; the rest of the application
    continues.
    """
    engine, view = engine_of(app), app.view_functions.get(fault.endpoint)

    def is_off() -> bool:
        return bool(fault.toggle) and not engine.is_on(app, fault.toggle)

    _logger.error(
        "Flask-Idempotence: every request to %r %s answered 500. %s",
        fault.endpoint,
        "would be" if is_off() or engine.observes(app) else "is",
        fault.text,
    )

    def refuse(**arguments: object) -> Any:
        guard = next(guards_of(view, request.method), None)
        if view is None or not (is_off() or engine.observes(app, guard)):
            raise ConfigurationError(fault.text)
        if not is_off():
            engine.report_observed(Claim(app, guard or Guard(), fault.endpoint), ERROR)
        return app.ensure_sync(view)(**arguments)

    app.view_functions[fault.endpoint] = refuse


def faults_of(app: Flask, config: Config, store: Store | None = None) -> Iterator[Fault]:
    """Find the faults of the views; without the store, others may still be registered."""
    yield from _wrong_order(app)
    yield from dict.fromkeys(_against_settings(app, config, store))
    if store is not None:
        yield from _idle(app)


def _wrong_order(app: Flask) -> Iterator[Fault]:
    behind = {
        id(inner)
        for view in app.view_functions.values()
        for outer in wrapped_by(view)
        if guard_at(outer) is not None
        for inner in wrapped_by(outer)
        if inner is not outer
    }
    for endpoint, view in app.view_functions.items():
        for layer in wrapped_by(view):
            if has_own_mark(layer, GUARDED) and id(layer) not in behind:
                yield Fault(
                    endpoint,
                    f"The guard of the view {endpoint!r} is above its route, where it guards "
                    "nothing. Put the route decorator outermost, then the login check, then the "
                    "guard, then the view. (To register the bare view on purpose, register a "
                    "function of its own that calls it.)",
                )
                break
            if guard_at(layer) is not None:
                break


def _against_settings(app: Flask, config: Config, store: Store | None) -> Iterator[Fault]:
    """Find guards whose arguments do not go with the settings, for each method again."""
    for endpoint, view, method in _served(app):
        for guard in guards_of(view, method):
            try:
                guard.check(endpoint, config)
                if store is not None and guard.within and not takes_completions(store):
                    text = f"The view {endpoint!r}: {NEEDS_DATABASE}"
                    yield Fault(endpoint, text, guard.toggle)
            except ConfigurationError as error:
                yield Fault(endpoint, str(error))


def _idle(app: Flask) -> Iterator[Fault]:
    """Find guards of views with safe methods only, once all views are there.

    A guard for a whole class, or for all classes of an API, is idle if no view of them needs it.
    """
    served = [
        (guard, id(subject), endpoint, method)
        for endpoint, view, method in _served(app)
        for guard, subject in guards_and_subjects(view, method)
    ]
    at_work = {(guard, subject) for guard, subject, _, method in served if covers(guard, method)}
    idle: dict[tuple[ViewGuard, str], set[str]] = {}
    for guard, subject, endpoint, method in served:
        if (guard, subject) not in at_work:
            idle.setdefault((guard, endpoint), set()).add(method)
    for (guard, endpoint), methods in idle.items():
        takes_methods = any(argument.name == "methods" for argument in arguments_of(guard))
        by_name = f", or name them in {guard.decorator}(methods=...)" if takes_methods else ""
        yield Fault(
            endpoint,
            f"{guard.decorator} guards nothing at the view {endpoint!r}: the route has safe "
            f"methods only ({', '.join(sorted(methods))}), which pass every guard. Give the "
            f"route methods=['POST'], or remove the guard{by_name}.",
        )


def _served(app: Flask) -> Iterator[tuple[str, object, str]]:
    """Return the endpoint, the view and the method of each request that a route takes."""
    for rule in app.url_map.iter_rules():
        for method in METHODS if rule.methods is None else rule.methods:
            yield rule.endpoint, app.view_functions.get(rule.endpoint), method
