"""Validation of the arguments of decorators, and of what their functions return.

A check takes the name of the argument for the error's text, as in `idempotent(ttl=...)`, and the
value, which is not the default None. It returns the value that counts, or raises a
ConfigurationError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeVar

from flask import Request
from marshmallow import ValidationError
from werkzeug.exceptions import BadRequest

from ..config.settings import NAMESPACE, SETTINGS, seconds
from ..engine.guard import argument
from ..errors import ConfigurationError
from ..request.fingerprint import canonical

T = TypeVar("T")


def _converted(convert: Callable[..., T], label: str, value: object, more: str = "") -> T:
    try:
        return convert(value)
    except ValidationError as error:
        text = str(error.messages[0]).removesuffix(".")
        raise ConfigurationError(f"{label}: {text}{more}.") from None


duration = partial(_converted, seconds)
wait = partial(_converted, partial(seconds, allow_zero=True))


def of_setting(name: str, *, or_function: bool = False) -> Any:
    """Return an argument that replaces a setting, and has the same rule."""
    convert = SETTINGS[NAMESPACE + name.upper()].metadata["field"].deserialize

    def check(label: str, value: object) -> object:
        if or_function and callable(value):
            return function(label, value)
        return _converted(convert, label, value, ", or a function" if or_function else "")

    return argument(check, setting=name)


def flag(label: str, value: object) -> object:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{label} must be True or False.")
    return value


def names(label: str, value: Collection[str]) -> frozenset[str]:
    if isinstance(value, str):
        raise ConfigurationError(f"{label} takes a collection of names, not one string.")
    return frozenset(value)


def argument_names(label: str, value: Collection[str]) -> frozenset[str]:
    """Check the names of arguments, which are looked up on the first level alone."""
    found = names(label, value)
    if others := [name for name in found if not isinstance(name, str)]:
        raise ConfigurationError(f"{label} takes a collection of names, and no {others[0]!r}.")
    if inner := sorted(name for name in found if "." in name):
        raise ConfigurationError(
            f"{label} takes names of arguments, and no dotted names: {inner[0]!r}. "
            "Choose by a function: compare= of idempotent, or key= of no_repeat_submit."
        )
    return found


def function(label: str, value: T) -> T:
    """Check that an argument is a function, and no async one."""
    if not callable(value):
        raise ConfigurationError(f"{label} must be callable.")
    called = getattr(type(value), "__call__", None)  # noqa: B004 - of an object, it may be async
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(called):
        raise ConfigurationError(f"{label} cannot be an async function.")
    return value


def canonical_result(argument: str, request: Request, value: object) -> bytes:
    try:
        return canonical(value)
    except (TypeError, ValueError, RecursionError) as error:
        if None in request.form or None in request.files:
            raise BadRequest("A part of the form has no name.") from None
        raise ConfigurationError(
            f"{argument} of {request.endpoint!r} must return a value that JSON can hold, or a "
            f"UUID: {error}."
        ) from None
