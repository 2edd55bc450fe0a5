"""Misnamed settings: which one is meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

NAMESPACE = "IDEMPOTENCE_"

_FOREIGN = re.compile(r"(?:FLASK_)?IDEMPOTEN(?:CE|CY|T)_(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_CLOSE = 0.75
"""Ratio of similarity from which a name counts as a misspelling."""

_ELSEWHERE = {
    "EXPIRE": "KEY_TTL",
    "EXPIRES": "KEY_TTL",
    "HEADER": "KEY_HEADER",
    "HEADER_NAME": "KEY_HEADER",
    "LOCK_TIMEOUT": "LEASE",
    "SECRET_KEY": "HASH_KEY",
    "TIMEOUT": "LEASE",
}
"""Names that such settings have in other packages."""

_STORAGE_WORDS = frozenset(
    {
        *("BACKEND", "CACHE", "CONNECTION", "DATABASE", "DB", "DSN", "HOST", "POSTGRES", "REDIS"),
        *("SERVER", "SQLALCHEMY", "SQLITE", "STORAGE", "STORE", "URI", "URL", "VALKEY"),
    }
)


def foreign_settings(values: Mapping[str, Any], known: Collection[str]) -> Iterator[str]:
    """Say of each entry that looks like a setting of this package, and is none, which is meant.

    Args:
        values: the application's configuration.
        known: the names of all settings.
    """
    for name in values:
        found = _FOREIGN.fullmatch(name) if isinstance(name, str) else None
        if found is None or name in known:
            continue
        rule = "" if name.startswith(NAMESPACE) else f": settings begin with {NAMESPACE}"
        yield f"{name} is not a setting{rule}. Did you mean {_meant(found['rest'], known)}?"


def _meant(rest: str, known: Collection[str]) -> str:
    rest = rest.upper()
    names = [name.removeprefix(NAMESPACE) for name in known]
    close = difflib.get_close_matches(rest, names, n=1, cutoff=_CLOSE)
    if rest in _ELSEWHERE:
        meant = _ELSEWHERE[rest]
    elif close:
        meant = close[0]
    elif "OPTIONS" not in rest and _STORAGE_WORDS.intersection(rest.split("_")):
        meant = "STORAGE_URI"
    else:
        meant = difflib.get_close_matches(rest, names, n=1, cutoff=0)[0]
    return NAMESPACE + meant
