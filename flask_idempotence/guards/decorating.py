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

    from ..modes import Guard

P = ParamSpec("P")
R = TypeVar("R")

_GUARDED = "__idempotence_guarded__"
_GUARD = "__idempotence_guard__"


def guarded(guard: Guard, view: Callable[P, R]) -> Callable[P, R]:
    """Wrap a view function, sync or async, so that it runs behind a guard.

    Raises:
        TypeError: it is not a function.
    """
    if inspect.isclass(view) or not callable(view):
        raise TypeError(
            f"A guard decorates a view function, not {view!r}. Of a class-based view, decorate "
            "its methods, or name the guard in its `decorators`."
        )
    is_async = inspect.iscoroutinefunction(view)

    @functools.wraps(view)
    def behind_guard(*args: P.args, **kwargs: P.kwargs) -> Any:
        context = actual(request_ctx)
        app = context.app
        call = functools.partial(app.ensure_sync(view) if is_async else view, *args, **kwargs)
        return engine_of(app).run(app, context.request, guard, call)

    # `functools.wraps` copies attributes from function to function: each mark names its bearer.
    setattr(behind_guard, _GUARD, behind_guard)
    _mark(view)
    return behind_guard


def _mark(view: Callable[..., Any]) -> None:
    # A bound method or a builtin takes no mark: a wrong order around it goes unnoticed.
    with contextlib.suppress(AttributeError):
        setattr(view, _GUARDED, view)


def check_order(app: Flask) -> None:
    """Look for views that were registered before their guard came around them.

    Raises:
        ConfigurationError: names the endpoint and the right order.
    """
    behind = {
        id(inner)
        for view in app.view_functions.values()
        for outer in _layers(view)
        if _bears(outer, _GUARD)
        for inner in _layers(outer)
    }
    for endpoint, view in app.view_functions.items():
        for layer in _layers(view):
            if _bears(layer, _GUARD):
                break
            if _bears(layer, _GUARDED) and id(layer) not in behind:
                raise ConfigurationError(
                    f"The guard of the view {endpoint!r} stands above its route, where it guards "
                    "nothing. The right order is: the route decorator outermost, then the login "
                    "check, then the guard, then the view. (Where the bare view is meant, "
                    "register a function of its own that calls it.)"
                )


def _layers(view: Any) -> Iterator[Any]:
    while view is not None:
        yield view
        view = getattr(view, "__wrapped__", None)


def _bears(view: Any, mark: str) -> bool:
    return getattr(view, mark, None) is view
