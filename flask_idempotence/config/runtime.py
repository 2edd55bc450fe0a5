"""Reading an application's settings, and the parts that may change later: toggles and callbacks.

All other settings are fixed by `init_app`; a late change has no effect, and is reported.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

from flask import Flask, Response
from marshmallow import Schema, ValidationError, fields

from ..errors import ConfigurationError
from .settings import ALLOW, AT_MOST_ONCE, FINAL, NAMESPACE, SETTINGS, Config

_logger = logging.getLogger("flask_idempotence")

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
    is_of_storage = "OPTIONS" not in rest and _STORAGE_WORDS.intersection(rest.split("_"))
    names = [name.removeprefix(NAMESPACE) for name in SETTINGS]
    cutoff = 0.75 if is_of_storage else 0.0  # beyond it, a misspelling
    return next(iter(difflib.get_close_matches(rest, names, 1, cutoff)), "STORAGE_URI")


_FIXED = tuple(name for name, field in SETTINGS.items() if not field.metadata["live"])
_read_fixed = itemgetter(*_FIXED)
_boolean = fields.Boolean()

IdentityLoader = Callable[[], object]
FailedPredicate = Callable[["Response"], bool]


@dataclass(slots=True)
class Callbacks:
    """The application's own functions, which may be registered after `init_app`."""

    load_identity: IdentityLoader | None = None
    result_failed: FailedPredicate | None = None


class Switches:
    """Reads the toggles of one application, and notices late changes of its other settings.

    Every setting gets its value or default in `app.config`.
    """

    def __init__(self, app: Flask, config: Config) -> None:
        for name, field in SETTINGS.items():
            value = getattr(config, field.name)
            app.config[name] = value if name not in _FIXED else app.config.get(name, value)
        self._seen: tuple[object, ...] = _read_fixed(app.config)

    def is_on(self, app: Flask, toggle: str) -> bool:
        """Whether a mode is switched on, and the extension as a whole."""
        return _truth(app, "IDEMPOTENCE_ENABLED") and _truth(app, toggle)

    def observes(self, app: Flask) -> bool:
        return _truth(app, "IDEMPOTENCE_OBSERVE")

    def report_late(self, app: Flask) -> None:
        """Warn of settings that were changed after `init_app`, each change once."""
        if (now := _read_fixed(app.config)) == self._seen:
            return
        pairs = zip(_FIXED, self._seen, now, strict=True)
        _logger.warning(
            "Flask-Idempotence: settings changed after init_app keep their old value: %s. Set "
            "them before.",
            ", ".join(name for name, was, is_ in pairs if was != is_),
        )
        self._seen = now

    @staticmethod
    def report_foreign(app: Flask) -> None:
        """Warn of entries made after `init_app` under a name that is not a setting."""
        for problem in foreign_settings(app.config):
            _logger.warning(
                "Flask-Idempotence: %s It was set after init_app: set it before.", problem
            )


def _truth(app: Flask, toggle: str) -> bool:
    try:
        return bool(_boolean.deserialize(app.config[toggle]))
    except ValidationError as error:
        raise ConfigurationError(f"{toggle}: {error.messages[0]}") from None
