"""JSON bodies: read so that no two that differ for an application look alike."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal

_FRACTION = re.compile(r"[0-9][.eE]")
_SURE_LENGTH = 16
"""15 digits and a point: so many come back from a double as they were."""


def read_json(data: bytes, loads: Callable[[str], object]) -> tuple[str, object]:
    """Return the kind and the value of a JSON text.

    The kind is `"json"` where all numbers are exact as integers and doubles, and their spelling
    means nothing to the application. Else it is `"exact"`: numbers with a fraction or an exponent
    are texts then, and marked.

    Args:
        data: the bytes of the text.
        loads: the application's own function.

    Raises:
        ValueError: it is no JSON, or an object has two values of one name, of which different
            parsers choose different ones.
        RecursionError: it is nested too deep.
    """
    text = data.decode(json.detect_encoding(data), "surrogatepass")
    if not _FRACTION.search(text):
        return "json", _read(text)
    if _reads_doubles(loads):
        try:
            return "json", _read_doubles(text)
        except _InexactError:
            pass
    return "exact", _marked(_read_as_written(text))


class _InexactError(Exception):
    """A number is not the double that would stand for it."""


class _Written(str):
    """A number as it is written."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("An object has two values of one name.")
    return value


def _double(text: str) -> float:
    value = float(text)
    if len(text) > _SURE_LENGTH or "e" in text or "E" in text:
        try:
            is_exact = math.isfinite(value) and Decimal(text) == Decimal(repr(value))
        except ArithmeticError:  # an exponent that no decimal has
            is_exact = False
        if not is_exact:
            raise _InexactError
    return value


def _reads_doubles(loads: Callable[[str], object]) -> bool:
    try:
        return type(loads("1.5")) is float
    except Exception:  # noqa: BLE001 - it is the application's
        return False


def _marked(value: object) -> object:
    if isinstance(value, dict):
        return {name: _marked(item) for name, item in value.items()}
    if isinstance(value, list):
        return ["list", *map(_marked, value)]
    return ["number", str(value)] if isinstance(value, _Written) else value


_read = json.JSONDecoder(object_pairs_hook=_object).decode
_read_doubles = json.JSONDecoder(object_pairs_hook=_object, parse_float=_double).decode
_read_as_written = json.JSONDecoder(object_pairs_hook=_object, parse_float=_Written).decode
