"""Checks of an application's guards: the faults that they find, endpoint by endpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

from flask import Flask, request

from ..config.settings import Config
from ..engine.claim import Attempt
from ..engine.engine import engine_of
from ..engine.guard import ViewGuard
from ..engine.observing import ERROR
from ..errors import NEEDS_DATABASE, ConfigurationError
from ..exactly_once import takes_completions
from ..stores.base import Store
from .wrapping import GUARDED, bears, covers, guards_and_subjects, guards_of, is_guard, layers

_logger = logging.getLogger("flask_idempotence")


class Fault(NamedTuple):
    """A promise of an endpoint that cannot be kept, with the remedy."""

    endpoint: str
    text: str


def close_endpoint(app: Flask, fault: Fault) -> None:
    """Answer every request to a faulty endpoint with a 500, and say so in the log.

    Its view must not run unguarded, unless it is only observed; the rest of the application
    continues.
    """
    _logger.error(
        "Flask-Idempotence: every request to %r %s answered 500. %s",
        fault.endpoint,
        "would be" if engine_of(app).observes(app) else "is",
        fault.text,
    )
    view = app.view_functions.get(fault.endpoint)

    def refuse(**arguments: object) -> Any:
        engine, guard = engine_of(app), next(guards_of(view, request.method), None)
        if view is None or not engine.observes(app, guard):
            raise ConfigurationError(fault.text)
        mode = "-" if guard is None else guard.mode
        engine.report_observed(Attempt(app, mode, fault.endpoint), ERROR)
        return app.ensure_sync(view)(**arguments)

    app.view_functions[fault.endpoint] = refuse


def faults_of(app: Flask, config: Config, store: Store | None = None) -> Iterator[Fault]:
    """Find the faults of the views that are there; others may still be registered."""
    yield from _wrong_order(app)
    yield from _against_settings(app, config, store)


def faults_when_finished(
    app: Flask, config: Config, store: Store | None = None
) -> Iterator[Fault]:
    yield from faults_of(app, config, store)
    yield from _idle(app)


def _wrong_order(app: Flask) -> Iterator[Fault]:
    behind = {
        id(inner)
        for view in app.view_functions.values()
        for outer in layers(view)
        if is_guard(outer)
        for inner in layers(outer)
        if inner is not outer
    }
    for endpoint, view in app.view_functions.items():
        for layer in layers(view):
            if bears(layer, GUARDED) and id(layer) not in behind:
                yield Fault(
                    endpoint,
                    f"The guard of the view {endpoint!r} is above its route, where it guards "
                    "nothing. Put the route decorator outermost, then the login check, then the "
                    "guard, then the view. (To register the bare view on purpose, register a "
                    "function of its own that calls it.)",
                )
                break
            if is_guard(layer):
                break


def _against_settings(app: Flask, config: Config, store: Store | None) -> Iterator[Fault]:
    """Find guards whose arguments do not go with the settings, each once."""
    found: dict[Fault, None] = {}
    for endpoint, view, method in _served(app):
        for guard in guards_of(view, method):
            try:
                guard.check(endpoint, config)
                if store is not None and guard.within and not takes_completions(store):
                    found[Fault(endpoint, f"The view {endpoint!r}: {NEEDS_DATABASE}")] = None
            except ConfigurationError as error:
                found[Fault(endpoint, str(error))] = None
    yield from found


def _idle(app: Flask) -> Iterator[Fault]:
    """Find guards of views with safe methods only, once all views are there.

    A guard for a whole class, or for all classes of an API, is idle if no view of them needs it.
    """
    at_work: set[tuple[int, int]] = set()
    places: dict[tuple[int, int], tuple[ViewGuard, dict[str, set[str]]]] = {}
    for endpoint, view, method in _served(app):
        for guard, subject in guards_and_subjects(view, method):
            place = id(guard), id(subject)
            endpoints = places.setdefault(place, (guard, {}))[1]
            endpoints.setdefault(endpoint, set()).add(method)
            if covers(guard, method):
                at_work.add(place)
    for guard, endpoints in (found for place, found in places.items() if place not in at_work):
        by_name = ", or name them in no_repeat_submit(methods=...)" if guard.mode == "lock" else ""
        for endpoint, methods in endpoints.items():
            yield Fault(
                endpoint,
                f"{guard.decorator} guards nothing at the view {endpoint!r}: the route has safe "
                f"methods only ({', '.join(sorted(methods))}), which pass every guard. Give the "
                f"route methods=['POST'], or remove the guard{by_name}.",
            )


def _served(app: Flask) -> Iterator[tuple[str, object, str]]:
    """Return the endpoint, the view and the method of each request that a route takes."""
    for rule in app.url_map.iter_rules():
        for method in ("GET", "POST") if rule.methods is None else rule.methods:
            yield rule.endpoint, app.view_functions.get(rule.endpoint), method
