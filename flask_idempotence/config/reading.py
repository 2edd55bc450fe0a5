"""Reading an application's settings, and finding the misnamed ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping

from marshmallow import Schema, ValidationError

from ..errors import ConfigurationError
from .settings import ALLOW, AT_MOST_ONCE, FINAL, NAMESPACE, SETTINGS, Config

_Settings: type[Schema] = Schema.from_dict(
    {name: field.metadata["field"] for name, field in SETTINGS.items()}
)

_CLEARER = {
    "Field may not be null.": "Must not be None.",
    "Not a valid boolean.": "Must be a boolean: True or False.",
    "Not a valid integer.": "Must be an integer.",
    "Not a valid mapping type.": "Must be a mapping.",
    "Not a valid string.": "Must be a string.",
}
"""Sentences of marshmallow's that name no allowed value, and ours in their place."""

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
        *("BACKEND", "CACHE", "CONNECTION", "DATABASE", "DB", "DSN", "HOST", "MYSQL", "POSTGRES"),
        *("REDIS", "SERVER", "SQLALCHEMY", "SQLITE", "STORAGE", "STORE", "URI", "URL", "VALKEY"),
    }
)


def read_config(values: Mapping[str, object]) -> Config:
    """Validate the settings among an application's own, and fill the defaults in.

    An error never repeats a value, which may hold a password.
    """
    problems = list(foreign_settings(values))
    try:
        loaded = _Settings().load({name: values[name] for name in SETTINGS if name in values})
    except ValidationError as error:
        loaded, bad = {}, sorted(error.messages_dict.items())
        problems += [f"{name}: {' '.join(_sentences(problem))}" for name, problem in bad]
    if problems:
        raise ConfigurationError(" ".join(problems))
    config = Config(**{SETTINGS[name].name: value for name, value in loaded.items()})
    _check_together(config)
    return config


def _check_together(config: Config) -> None:
    if config.max_hold < config.lease:
        raise ConfigurationError("IDEMPOTENCE_MAX_HOLD must not be less than IDEMPOTENCE_LEASE.")
    if config.key_guarantee != AT_MOST_ONCE:
        return
    if config.on_store_error == ALLOW:
        raise ConfigurationError(
            "IDEMPOTENCE_KEY_GUARANTEE is 'at-most-once', which cannot be kept while "
            "IDEMPOTENCE_ON_STORE_ERROR is 'allow': the view would run unguarded. Set it to "
            "'reject', and give the routes of locks and tokens on_store_error='allow'."
        )
    if config.key_remember != FINAL:
        raise ConfigurationError(
            "IDEMPOTENCE_KEY_GUARANTEE is 'at-most-once', which remembers every response: leave "
            "IDEMPOTENCE_KEY_REMEMBER out."
        )


def _sentences(problem: object) -> Iterator[str]:
    if isinstance(problem, Mapping):
        problem = list(problem.values())
    if isinstance(problem, list):
        for inner in problem:
            yield from _sentences(inner)
    else:
        yield _CLEARER.get(str(problem), str(problem))


def foreign_settings(names: Iterable[object]) -> Iterator[str]:
    """Yield a sentence for each name that looks like a setting of this package, and is none."""
    for name in names:
        found = _FOREIGN.fullmatch(name) if isinstance(name, str) else None
        if found is None or found[0] in SETTINGS:
            continue
        rule = "" if found[0].startswith(NAMESPACE) else f": settings begin with {NAMESPACE}"
        meant = NAMESPACE + _meant(found["rest"].upper())
        yield f"{name} is not a setting{rule}. Did you mean {meant}?"


def _meant(rest: str) -> str:
    if rest in _ELSEWHERE:
        return _ELSEWHERE[rest]
    names = [name.removeprefix(NAMESPACE) for name in SETTINGS]
    closest = difflib.get_close_matches(rest, names, n=1, cutoff=0)[0]
    is_misspelt = difflib.SequenceMatcher(None, closest, rest).ratio() >= _CLOSE
    is_of_storage = "OPTIONS" not in rest and _STORAGE_WORDS.intersection(rest.split("_"))
    return "STORAGE_URI" if is_of_storage and not is_misspelt else closest
