"""How a guard comes around a view, and how it is found there again."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from flask.globals import request_ctx

from ..engine import engine_of
from ..errors import ConfigurationError
from ..proxies import actual

if TYPE_CHECKING:
    from flask import Flask

    from ..config import Config
    from ..modes import ViewGuard

P = ParamSpec("P")
R = TypeVar("R")

_GUARDED = "__idempotence_guarded__"
_GUARD = "__idempotence_guard__"
_BY = "__idempotence_by__"


def guarded(guard: ViewGuard, view: Callable[P, R]) -> Callable[P, R]:
    """Wrap a view function by hand of its author, and remember to look at the order.

    Raises:
        TypeError: it is not a function.
    """
    behind_guard = put_behind(guard, view)
    _mark(view)
    return behind_guard


def decorator_of(guard: ViewGuard) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return what puts a view behind a guard, and tells which one to whoever looks for it."""

    def decorate(view: Callable[P, R]) -> Callable[P, R]:
        return guarded(guard, view)

    setattr(decorate, _BY, guard)
    return decorate


def put_behind(guard: ViewGuard, view: Callable[P, R]) -> Callable[P, R]:
    """Wrap a view function, sync or async, so that it runs behind a guard.

    Raises:
        TypeError: it is not a function.
    """
    if inspect.isclass(view) or not callable(view):
        raise TypeError(
            f"A guard decorates a view function, not {view!r}. Of a class-based view, decorate "
            "its methods, or name the guard in its `decorators`."
        )
    guard.accept(view)
    is_async = inspect.iscoroutinefunction(view)

    @functools.wraps(view)
    def behind_guard(*args: P.args, **kwargs: P.kwargs) -> Any:
        context = actual(request_ctx)
        app = context.app
        call = functools.partial(app.ensure_sync(view) if is_async else view, *args, **kwargs)
        return engine_of(app).run(app, context.request, guard, call)

    # `functools.wraps` copies attributes from function to function: each mark names its bearer.
    setattr(behind_guard, _GUARD, behind_guard)
    setattr(behind_guard, _BY, guard)
    return behind_guard


def _mark(view: Callable[..., Any]) -> None:
    # A bound method or a builtin takes no mark: a wrong order around it goes unnoticed.
    with contextlib.suppress(AttributeError):
        setattr(view, _GUARDED, view)


def guards_of(view: Any, method: str) -> Iterator[ViewGuard]:
    """Return the guards that stand around a view, outermost first.

    Args:
        view: a view function, or what a class-based view was made into.
        method: which of the class's methods is meant.
    """
    for layer in layers(view, method):
        if bears(layer, _GUARD):
            yield getattr(layer, _BY)
        elif inspect.isclass(layer):
            yield from _guards_to_come(layer)


def _guards_to_come(view_class: Any) -> Iterator[ViewGuard]:
    # Flask-RESTX puts a method behind these at each request anew.
    for decorate in getattr(view_class, "method_decorators", ()):
        if (guard := getattr(decorate, _BY, None)) is not None:
            yield guard


def check_guards(app: Flask, config: Config) -> None:
    """Let every guard look at the settings.

    Raises:
        ConfigurationError: one does not go with them; the text names the endpoint.
    """
    for rule in app.url_map.iter_rules():
        view = app.view_functions.get(rule.endpoint)
        for method in rule.methods or ():
            for guard in guards_of(view, method):
                guard.check(rule.endpoint, config)


def check_order(app: Flask) -> None:
    """Look for views that were registered before their guard came around them.

    Raises:
        ConfigurationError: names the endpoint and the right order.
    """
    behind = {
        id(inner)
        for view in app.view_functions.values()
        for outer in layers(view)
        if bears(outer, _GUARD)
        for inner in layers(outer)
        if inner is not outer
    }
    for endpoint, view in app.view_functions.items():
        for layer in layers(view):
            if bears(layer, _GUARDED) and id(layer) not in behind:
                raise ConfigurationError(
                    f"The guard of the view {endpoint!r} stands above its route, where it guards "
                    "nothing. The right order is: the route decorator outermost, then the login "
                    "check, then the guard, then the view. (Where the bare view is meant, "
                    "register a function of its own that calls it.)"
                )
            if bears(layer, _GUARD):
                break


def layers(view: Any, method: str | None = None) -> Iterator[Any]:
    """Return a view, what it wraps, and so on; with a method, also that of a class-based view."""
    view_class = getattr(view, "view_class", None)
    while view is not None:
        yield view
        view = getattr(view, "__wrapped__", None)
    if method is not None and inspect.isclass(view_class):
        yield view_class
        for name in ("dispatch_request", method.lower()):
            yield from layers(getattr(view_class, name, None))


def bears(view: Any, mark: str) -> bool:
    """Whether something was marked itself, and not only copied from what it wraps."""
    return getattr(view, mark, None) is view
