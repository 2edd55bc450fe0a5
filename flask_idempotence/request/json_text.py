"""JSON texts: read as a fingerprint compares them, and handed on to the view."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flask import Request
from flask.json.provider import DefaultJSONProvider

MOST_FRACTIONS = 256
"""Numbers with a fraction or an exponent that are read as doubles: comparing them takes long."""

_MARK = float("nan")


def read_json(data: bytes) -> tuple[str, object, int]:
    """Return the kind and the value of a JSON text, and the number of its colons.

    The kind is `"json"` where the value is what `json.loads` returns, and is written again as it
    was. Else it is `"exact"`: a number with a fraction or an exponent is then a pair of NaN and a
    text. The colons are as many as in the canonical text, unless an object has a name twice.
    """
    encoding = "utf-8" if data.startswith(b'{"') else json.detect_encoding(data)
    text = data.decode(encoding, "surrogatepass")
    colons = text.count(":")
    if "\\u003" in text:  # colons may be escaped, and so may the backslash before `u003a`
        plain = text.replace(r"\\", "")
        colons += plain.count(r"\u003a") + plain.count(r"\u003A")
    try:
        return "json", _reader(text)(text), colons
    except _UnusualNumber:
        return "exact", _read_as_written(text), colons


class _UnusualNumber(Exception):
    """A number that a double would not be written as, or not be equal to; or one too many."""


def _double(text: str) -> float:
    if repr(value := float(text)) != text:
        raise _UnusualNumber
    return value


def _reader(text: str) -> Callable[[str], object]:
    if len(text) < 4 * MOST_FRACTIONS:
        return _read
    left = iter(range(MOST_FRACTIONS))

    def double(number: str) -> float:
        if next(left, None) is None:
            raise _UnusualNumber
        return _double(number)

    return json.JSONDecoder(parse_float=double).decode


def _written(text: str) -> tuple[float, str]:
    return _MARK, text


_read = json.JSONDecoder(parse_float=_double).decode
_read_as_written = json.JSONDecoder(parse_float=_written, parse_constant=_written).decode


class _Parsed:
    """In place of a request's `json_module`: returns the value of a body that was parsed."""

    def __init__(self, module: DefaultJSONProvider, data: bytes, value: object) -> None:
        self._module = module
        self._known = [(data, value)]

    def loads(self, data: str | bytes, **options: Any) -> object:
        # Once: the view may alter what it gets.
        if self._known and not options and data == self._known[0][0]:
            return self._known.pop()[1]
        return self._module.loads(data, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def offer_json(request: Request, data: bytes, value: object) -> None:
    """Let `request.get_json()` return the value of a body, where the application uses Flask's."""
    module = request.json_module
    if getattr(type(module), "loads", None) is DefaultJSONProvider.loads:
        request.json_module = _Parsed(module, data, value)
