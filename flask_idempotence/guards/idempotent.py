"""The decorator of key mode, and its arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, overload

from flask import Response

from ..config.settings import Guarantee, OnRepeat, OnStoreError, Remember
from .key import KeyGuard
from .wrapping import B, Decorator, P, R, Subject, decorator_of

if TYPE_CHECKING:
    from ..exactly_once import Within


@overload
def idempotent(view: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def idempotent(view: B, /) -> B: ...


@overload
def idempotent(
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
    unless: Callable[[], object] | None = None,
    observe: bool | None = None,
    on_store_error: OnStoreError | None = None,
    within: Within | None = None,
) -> Decorator: ...


def idempotent(view: Subject | None = None, /, **given: object) -> object:
    """Run a request with an `Idempotency-Key` once; its repeats get the first response.

    Also bare: `@idempotent`. A key belongs to its sender, endpoint and method. The rules are
    those of draft-ietf-httpapi-idempotency-key-header-07, and of Stripe's API where the draft
    leaves room. The settings `IDEMPOTENCE_KEY_…` apply where an argument is not given.

    Args:
        view: the view function or Blueprint, where the decorator is bare.
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
        unless: called without arguments once a request, before the sender is identified and the
            store asked; if it returns true, the view runs unguarded. The transaction of `within`
            stays.
        observe: whether to count and log only what the guard would have done. None: the setting
            `IDEMPOTENCE_OBSERVE`.
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
