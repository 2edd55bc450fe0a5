"""Validation of the arguments of decorators, and of what their functions return.

Every function takes the name of the decorator and of the argument, for the error's text, and
raises a ConfigurationError.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING, get_args

from marshmallow import ValidationError

from ..config.settings import OnStoreError, key_pattern, seconds
from ..errors import ConfigurationError
from ..request.fingerprint import canonical

if TYPE_CHECKING:
    from flask import Request


def duration(
    decorator: str, name: str, value: float | timedelta | None, *, allow_zero: bool = False
) -> float | None:
    """Return a duration in seconds; None for the setting."""
    try:
        return None if value is None else seconds(value, allow_zero=allow_zero)
    except ValidationError as error:
        raise ConfigurationError(f"{decorator}({name}=...): {error.messages[0]}") from None


def wait(decorator: str, value: float | timedelta | None) -> float:
    """Return the seconds of an argument `wait=`; 0 for None."""
    return duration(decorator, "wait", value, allow_zero=True) or 0.0


def flag(decorator: str, name: str, value: object) -> None:
    """Check that an argument is True or False."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{decorator}({name}=...) must be True or False.")


def names(decorator: str, name: str, value: Collection[str] | None) -> frozenset[str]:
    """Return a collection of names; empty for None."""
    if isinstance(value, str):
        raise ConfigurationError(
            f"{decorator}({name}=...) takes a collection of names, not one string."
        )
    return frozenset(value or ())


def function(decorator: str, name: str, value: object) -> None:
    """Check that an argument is a function, and no async one; None is fine."""
    if value is not None and not callable(value):
        raise ConfigurationError(f"{decorator}({name}=...) must be callable.")
    if inspect.iscoroutinefunction(value):
        raise ConfigurationError(f"{decorator}({name}=...) cannot be an async function.")


def choice(decorator: str, name: str, value: object, choices: object, more: str = "") -> None:
    """Check that an argument is one of the choices of a `Literal`; None is fine."""
    if value is not None and value not in get_args(choices):
        allowed = ", ".join(map(repr, get_args(choices)))
        raise ConfigurationError(f"{decorator}({name}=...) must be one of {allowed}{more}.")


def pattern(decorator: str, name: str, value: str | None) -> str | None:
    """Return a regular expression; None for the setting."""
    try:
        return None if value is None else key_pattern(value)
    except ValidationError as error:
        raise ConfigurationError(f"{decorator}({name}=...): {error.messages[0]}") from None


def store_error_policy(decorator: str, value: OnStoreError | None) -> OnStoreError | None:
    """Return `"reject"`, `"allow"`, or None for the setting."""
    choice(decorator, "on_store_error", value, OnStoreError, ", or None for the setting")
    return value


def canonical_result(argument: str, request: Request, value: object) -> bytes:
    """Return the canonical text of a value with the result of an application's function in it."""
    try:
        return canonical(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{argument} of {request.endpoint!r} must return a value that JSON can hold: {error}."
        ) from None
