"""The slugs of refusals, and the settings that are keyed by them."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Mapping

from marshmallow import ValidationError

from ..errors import SLUGS

KEY_IN_PROGRESS = "key-in-progress"

DUPLICATES = ("repeat-submit", "token-spent", "key-repeated")
"""Refusals that need no further attempt; a single `IDEMPOTENCE_DUPLICATE_STATUS` is for these."""

REPEATS = frozenset({*DUPLICATES, KEY_IN_PROGRESS, "outcome-unknown", "response-not-stored"})
"""Refusals of requests that have been sent before."""


def messages(value: object) -> dict[str, object]:
    texts = _by_slug(value, SLUGS, "Must be a mapping of slugs to texts.")
    for slug, text in texts.items():
        if not _is_text(text):
            raise ValidationError(
                f"{slug!r} needs a text: a string that is not blank, or a lazy one with a str() "
                "of its own."
            )
    return texts


def _is_text(value: object) -> bool:
    if isinstance(value, str):
        return bool(value.strip()) and not any("\ud800" <= letter <= "\udfff" for letter in value)
    # Numbers, collections and functions have the `str()` of all objects.
    return type(value).__str__ is not object.__str__ and not isinstance(value, bytes | bytearray)


def duplicate_status(value: object) -> int | dict[str, int]:
    if not isinstance(value, Mapping):
        return _status(value, "Must be an integer, or a mapping of slugs to integers.")
    statuses = _by_slug(value, (*DUPLICATES, KEY_IN_PROGRESS), "")
    return {
        slug: _status(status, f"{slug!r} needs an integer.") for slug, status in statuses.items()
    }


def _status(value: object, error: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValidationError(error)
    if not 200 <= value <= 599:
        raise ValidationError("A status must be from 200 to 599.")
    return value


def _by_slug(value: object, slugs: Collection[str], error: str) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise ValidationError(error)
    for slug in value:
        if slug not in slugs:
            meant = str(slug).lower().replace("_", "-")
            [nearest] = difflib.get_close_matches(meant, slugs, n=1, cutoff=0)
            raise ValidationError(
                f"{slug!r} is not one of its slugs: {', '.join(slugs)}. Did you mean {nearest!r}?"
            )
    return dict(value)


def number_of(level: int | str) -> int:
    return level if isinstance(level, int) else logging.getLevelNamesMapping()[level]


def log_level(value: object) -> int | str:
    levels = logging.getLevelNamesMapping()
    if isinstance(value, str) and value.upper() in levels:
        return value.upper()
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValidationError(f"Must be the name of a level ({', '.join(levels)}), or its number.")
    return value
