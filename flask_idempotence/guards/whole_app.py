"""Key mode for every view of an application that has no rules of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any, TypeVar

from flask import Flask

from ..config.settings import Config
from ..errors import ConfigurationError
from .key import KeyGuard
from .wrapping import bears, guards_of, layers, put_behind

V = TypeVar("V")

_EXEMPT = "__idempotence_exempt__"


def exempt(view: V) -> V:
    if isinstance(view, Flask) or not callable(view):
        raise ConfigurationError(
            "idempotent.exempt takes a view function, a class-based view or one of its methods, "
            f"not a {type(view).__name__}. Decorate each of the views: "
            "those of a Blueprint are in app.view_functions under its name."
        )
    setattr(view, _EXEMPT, view)
    return view


def guard_all(app: Flask, methods: Collection[str]) -> None:
    """Put every view that answers one of the methods behind a key guard.

    Left out are those that are exempt, and those that have a key guard already.
    """
    answered: dict[str, set[str]] = defaultdict(set)
    for rule in app.url_map.iter_rules():
        answered[rule.endpoint] |= set(methods).intersection(rule.methods or methods)
    views: dict[str, Any] = app.view_functions
    for endpoint, view in views.items():
        open_to = frozenset(
            method for method in answered[endpoint] if not _speaks_for_itself(view, method)
        )
        if open_to:
            guard = KeyGuard(only_methods=open_to)
            views[endpoint] = put_behind(guard, view)


def guard_to_come(config: Config, view: object, method: str) -> KeyGuard | None:
    """Return the guard that the first request puts around a view for a method, if it does."""
    is_meant = config.key_all_routes and method in config.key_methods
    if is_meant and not _speaks_for_itself(view, method):
        return KeyGuard(only_methods=frozenset({method}))
    return None


def _speaks_for_itself(view: object, method: str) -> bool:
    has_guard = any(guard.mode == KeyGuard.mode for guard in guards_of(view, method))
    return has_guard or exempts(view, method)


def exempts(view: object, method: str) -> bool:
    return any(bears(layer, _EXEMPT) for layer in layers(view, method))
