"""Key mode for every view of an application that has no rules of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeVar

from .key import KeyGuard
from .wrapping import bears, guards_of, layers, put_behind

if TYPE_CHECKING:
    from flask import Flask

V = TypeVar("V")

_EXEMPT = "__idempotence_exempt__"


def exempt(view: V) -> V:
    """Leave a view out of whole-app mode, as `idempotent.exempt` does."""
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
            method for method in answered[endpoint] if not speaks_for_itself(view, method)
        )
        if open_to:
            guard = KeyGuard(only_methods=open_to)
            views[endpoint] = put_behind(guard, view)


def speaks_for_itself(view: Any, method: str) -> bool:
    """Whether a view is exempt from whole-app mode, or has a key guard of its own."""
    has_guard = any(guard.mode == KeyGuard.mode for guard in guards_of(view, method))
    return has_guard or exempts(view, method)


def exempts(view: Any, method: str) -> bool:
    """Whether a view is exempt from whole-app mode."""
    return any(bears(layer, _EXEMPT) for layer in layers(view, method))
