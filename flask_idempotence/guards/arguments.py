"""Validation of the arguments of decorators, and of what their functions return.

A check takes the name of the argument for the error's text, as in `idempotent(ttl=...)`, and the
value. It returns the value that counts, or raises a ConfigurationError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeVar, get_args

from flask import Request
from marshmallow import ValidationError

from ..config.settings import HEADER_NAME, OnStoreError, key_pattern, seconds
from ..engine.guard import argument
from ..errors import ConfigurationError
from ..request.fingerprint import canonical

T = TypeVar("T")


def _converted(convert: Callable[[Any], T]) -> Callable[[str, object], T | None]:
    """Return the check of an argument that is converted as a setting is; None is fine."""

    def check(label: str, value: object) -> T | None:
        try:
            return None if value is None else convert(value)
        except ValidationError as error:
            raise ConfigurationError(f"{label}: {error.messages[0]}") from None

    return check


duration = _converted(seconds)
wait = _converted(partial(seconds, allow_zero=True))
pattern = _converted(key_pattern)


def flag(label: str, value: object) -> object:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{label} must be True or False.")
    return value


def flag_or_none(label: str, value: object) -> object:
    return None if value is None else flag(label, value)


def names(label: str, value: Collection[str] | None) -> frozenset[str] | None:
    if isinstance(value, str):
        raise ConfigurationError(f"{label} takes a collection of names, not one string.")
    return None if value is None else frozenset(value)


def function(label: str, value: T) -> T:
    """Check that an argument is a function, and no async one; None is fine."""
    if value is not None and not callable(value):
        raise ConfigurationError(f"{label} must be callable.")
    called = getattr(type(value), "__call__", None)  # noqa: B004 - of an object, it may be async
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(called):
        raise ConfigurationError(f"{label} cannot be an async function.")
    return value


def function_or(check: Callable[[str, T], T]) -> Callable[[str, T], T]:
    """Return the check of a function, or of another value."""
    return lambda label, value: (function if callable(value) else check)(label, value)


def choice(choices: object, more: str = "") -> Callable[[str, object], object]:
    """Return the check of an argument that is one of the choices of a `Literal`, or None."""

    def check(label: str, value: object) -> object:
        if value is not None and value not in get_args(choices):
            allowed = ", ".join(map(repr, get_args(choices)))
            raise ConfigurationError(f"{label} must be one of {allowed}{more}.")
        return value

    return check


def header(label: str, value: object) -> object:
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{label} must be a header's name or a function.")
    if value is not None and not HEADER_NAME.fullmatch(value):
        raise ConfigurationError(
            f"{label.replace('...', repr(value))} is not the name of a header."
        )
    return value


ON_STORE_ERROR = partial(
    argument, choice(OnStoreError, ", or None for the setting"), setting="on_store_error"
)
"""Returns the argument `on_store_error` of a guard."""


def canonical_result(argument: str, request: Request, value: object) -> bytes:
    try:
        return canonical(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{argument} of {request.endpoint!r} must return a value that JSON can hold: {error}."
        ) from None
