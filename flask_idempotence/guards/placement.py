"""Guards that the first request puts around views: those of Blueprints, and whole-app key mode."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple, TypeVar

from flask import Blueprint, Flask

from ..config.settings import Config
from ..engine.guard import ViewGuard
from ..errors import ConfigurationError
from .checks import Fault
from .key import KeyGuard
from .wrapping import CARRIED, HAS_SERVED, bears, covers, guards_of, layers, put_behind

V = TypeVar("V")

_EXEMPT = "__idempotence_exempt__"
_OUTERMOST_FIRST = ("token", "lock", "key")


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
    setattr(view, _EXEMPT, view)
    return view


class Coming(NamedTuple):
    """A guard that the first request puts around a view, and its Blueprint, if one carries it."""

    guard: ViewGuard
    blueprint: str | None


def guards_to_come(app: Flask, config: Config, endpoint: str, method: str) -> list[Coming]:
    """Return the guards that the first request puts around a view, outermost first.

    Of each mode, that of the nearest Blueprint or else of the whole application, unless the view
    has a guard of this mode itself.
    """
    view = app.view_functions.get(endpoint)
    if view is None or any(bears(layer, _EXEMPT) for layer in layers(view, method)):
        return []
    found: dict[str, Coming | None] = dict.fromkeys(
        guard.mode for guard in guards_of(view, method)
    )
    for name in _blueprints_of(app, endpoint):
        blueprint = app.blueprints[name]
        for mode, guard in vars(blueprint).get(CARRIED, {}).items():
            if covers(guard, method):
                found.setdefault(mode, Coming(guard, name))
        if bears(blueprint, _EXEMPT):
            break
    else:
        if config.key_all_routes and method in config.key_methods:
            found.setdefault(KeyGuard.mode, Coming(KeyGuard(), None))
    return [coming for mode in _OUTERMOST_FIRST if (coming := found.get(mode)) is not None]


def is_exempt(app: Flask, endpoint: str, method: str) -> bool:
    blueprints = [app.blueprints[name] for name in _blueprints_of(app, endpoint)]
    places = [*layers(app.view_functions.get(endpoint), method), *blueprints]
    return any(bears(place, _EXEMPT) for place in places)


def _blueprints_of(app: Flask, endpoint: str) -> Iterator[str]:
    """Return the names of an endpoint's Blueprints, the nearest first."""
    name = endpoint.rpartition(".")[0]
    while name:
        if name in app.blueprints:
            yield name
        name = name.rpartition(".")[0]


def place_guards(app: Flask, config: Config) -> Iterator[Fault]:
    """Put these guards around the views; find those that cannot be kept."""
    places: dict[tuple[str, str], tuple[ViewGuard, set[str]]] = {}
    for rule in app.url_map.iter_rules():
        for method in rule.methods or config.key_methods:
            for guard, _ in guards_to_come(app, config, rule.endpoint, method):
                place = rule.endpoint, guard.mode
                places.setdefault(place, (guard, set()))[1].add(method)
    for blueprint in app.blueprints.values():
        setattr(blueprint, HAS_SERVED, True)
    views: dict[str, Any] = app.view_functions
    innermost_first = sorted(places, key=lambda place: -_OUTERMOST_FIRST.index(place[1]))
    for endpoint, mode in innermost_first:
        given, methods = places[endpoint, mode]
        guard = copy(given)
        guard.only_methods = frozenset(methods)
        try:
            guard.check(endpoint, config)
            views[endpoint] = put_behind(guard, views[endpoint])
        except ConfigurationError as error:
            yield Fault(endpoint, str(error))
