"""How a guard comes around a view, and how it is found there again."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from flask.globals import request_ctx

from ..engine.engine import engine_of
from ..engine.guard import SAFE_METHODS, ViewGuard
from ..request.proxies import actual

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
            "its methods, or name the guard in its `decorators`. Options are given by name, as in "
            "idempotent(ttl=60)."
        )
    guard.accept(view)
    is_async = inspect.iscoroutinefunction(view)

    @functools.wraps(view)
    def behind_guard(*args: P.args, **kwargs: P.kwargs) -> Any:
        context = actual(request_ctx)
        app, request = context.app, context.request
        call = functools.partial(app.ensure_sync(view) if is_async else view, *args, **kwargs)
        engine = engine_of(app)  # which fails for safe methods, too, where there is none
        if not covers(guard, request.method):
            return call()
        return engine.run(app, request, guard, call)

    # `functools.wraps` copies attributes from function to function: each mark names its bearer.
    setattr(behind_guard, _GUARD, behind_guard)
    setattr(behind_guard, _BY, guard)
    return behind_guard


def covers(guard: ViewGuard, method: str) -> bool:
    """Whether requests of a method are guarded."""
    if guard.only_methods is not None:
        return method in guard.only_methods
    return method not in SAFE_METHODS or method in guard.methods


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
    return (guard for guard, _ in standing(view, method))


def standing(view: Any, method: str) -> Iterator[tuple[ViewGuard, Any]]:
    """Return the guards around a view, outermost first, and the function that each is put around.

    The function is None where a guard stands around a class as a whole.
    """
    view_class = getattr(view, "view_class", None)
    in_class = view_class is None
    for layer in layers(view, method):
        if is_guard(layer):
            yield getattr(layer, _BY), _innermost(layer) if in_class else None
        elif inspect.isclass(layer):
            in_class = True
            yield from ((guard, None) for guard in _guards_to_come(layer))


def _innermost(layer: Any) -> Any:
    return list(layers(layer))[-1]


def _guards_to_come(view_class: Any) -> Iterator[ViewGuard]:
    # Flask-RESTX puts a method behind these at each request anew.
    for decorate in getattr(view_class, "method_decorators", ()):
        if (guard := getattr(decorate, _BY, None)) is not None:
            yield guard


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


def is_guard(layer: Any) -> bool:
    """Whether a function is the wrapper of a guard."""
    return bears(layer, _GUARD)


def was_guarded(layer: Any) -> bool:
    """Whether a guard was put around a function by a decorator."""
    return bears(layer, _GUARDED)


def bears(view: Any, mark: str) -> bool:
    """Whether something was marked itself, and not only copied from what it wraps."""
    return getattr(view, mark, None) is view
