"""The decorator of key mode, its arguments, and key mode for a whole application."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from flask import Flask, Response

from ..config.settings import Config, Guarantee, OnRepeat, OnStoreError, Remember
from ..errors import ConfigurationError
from .key import KeyGuard
from .wrapping import bears, decorator_of, guards_of, layers, put_behind

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")

_EXEMPT = "__idempotence_exempt__"


class Idempotent:
    """The decorator `@idempotent`: runs a request with an `Idempotency-Key` once."""

    @staticmethod
    def exempt(view: V) -> V:
        """Leave a view out of whole-app mode (`IDEMPOTENCE_KEY_ALL_ROUTES`).

        Args:
            view: a view function, a class-based view or one of its methods. It works above and
                below the route decorator.

        Raises:
            ConfigurationError: it is something else, such as a Blueprint.
        """
        if isinstance(view, Flask) or not callable(view):
            raise ConfigurationError(
                "idempotent.exempt takes a view function, a class-based view or one of its "
                f"methods, not a {type(view).__name__}. Decorate each of the views: those of a "
                "Blueprint are in app.view_functions under its name."
            )
        setattr(view, _EXEMPT, view)
        return view

    @overload
    def __call__(self, view: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def __call__(
        self,
        view: None = None,
        /,
        *,
        required: bool | None = None,
        ttl: float | timedelta | None = None,
        key: str | Callable[[], object] | None = None,
        key_pattern: str | None = None,
        ignore: Collection[str] = (),
        compare: Callable[[], object] | Literal[False] | None = None,
        on_repeat: OnRepeat | None = None,
        guarantee: Guarantee | None = None,
        remember: Remember | Callable[[Response], bool] | None = None,
        wait: float | timedelta | None = None,
        on_store_error: OnStoreError | None = None,
        within: Session | scoped_session[Any] | Callable[[], Session] | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def __call__(self, view: Callable[..., Any] | None = None, /, **given: Any) -> Any:
        """Run a request with an `Idempotency-Key` once; its repeats get the first response.

        Also bare: `@idempotent`. A key belongs to its sender, endpoint and method. The rules are
        those of draft-ietf-httpapi-idempotency-key-header-07, and of Stripe's API where the draft
        leaves room. The settings `IDEMPOTENCE_KEY_…` apply where an argument is not given.

        Args:
            view: the view function, where the decorator is bare.
            required: refuse a request without a key. If False, its view runs unguarded.
            ttl: seconds, or a `timedelta`, for which a response is remembered.
            key: another header's name; or a function that is called without arguments and returns
                the key, or None for none. The header `IDEMPOTENCE_TOKEN_HEADER` means a token
                that this application has issued, in that header or in its form field.
            key_pattern: a regular expression that the whole key must match, as a string.
            ignore: names of arguments in which a repeat may differ, besides
                `IDEMPOTENCE_IGNORED_ARGS`.
            compare: the content that a repeat must share with the first request. None: the whole
                request. A function, called without arguments: the value that it returns, which
                JSON can hold. False: nothing. The key alone decides then, and must name all that
                matters, such as the merchant in the path. The body is read only for None.
            on_repeat: `"replay"` the first response, or `"reject"` with an error.
            guarantee: `"at-least-once"`: a view that failed, or died, may run again.
                `"at-most-once"`: a view that has begun never begins again, however it ended.
            remember: the responses that are remembered, at-least-once: `"final"`, all but those of
                500 and more and 401, 403, 408, 409, 425 and 429, and those that the application's
                own `result_failed` calls failed; `"success"`, those that are no failed results; or
                a function that takes the response and returns a bool. Other responses release
                the key.
            wait: seconds, or a `timedelta`, that a repeat waits for the first request; 0 for no
                wait. It occupies a worker thread meanwhile.
            on_store_error: `"reject"` the request or `"allow"` it to run unguarded when the store
                does not answer; at-most-once takes no `"allow"`.
            within: the SQLAlchemy session in which the view writes (Flask-SQLAlchemy's
                `db.session`, another `scoped_session`, or a function that returns the session).
                The view does not commit: the guard does, together with the record of the
                response, so that the view happens exactly once. The store must be a table in the
                same database. A failed result is rolled back. It is a guarantee of its own,
                without `guarantee`, and needs the extra `sql`.

        Raises:
            ConfigurationError: an argument of the wrong kind.
        """
        return decorator_of(KeyGuard, view, given)


idempotent: Idempotent = Idempotent()


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
