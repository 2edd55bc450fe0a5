"""Reading an application's settings, and the parts that may change later: toggles and callbacks.

All other settings are fixed by `init_app`; a late change has no effect, and is reported.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from uuid import UUID

from flask import Flask, Response
from marshmallow import Schema, ValidationError

from ..errors import ConfigurationError
from .settings import NAMESPACE, SETTINGS, Config

_logger = logging.getLogger("flask_idempotence")

_Settings: type[Schema] = Schema.from_dict(
    {name: field.metadata["field"] for name, field in SETTINGS.items()}
)

_FOREIGN = re.compile(r"(?:FLASK_)?IDEMPOTEN(?:CE|CY|T)_(?P<rest>.*)", re.IGNORECASE | re.DOTALL)


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
    if config.key_guarantee != "at-most-once":
        return
    if config.on_store_error == "allow":
        raise ConfigurationError(
            "IDEMPOTENCE_KEY_GUARANTEE is 'at-most-once', which cannot be kept while "
            "IDEMPOTENCE_ON_STORE_ERROR is 'allow': the view would run unguarded. Set it to "
            "'reject', and give the routes of locks and tokens on_store_error='allow'."
        )
    if config.key_remember != "final":
        raise ConfigurationError(
            "IDEMPOTENCE_KEY_GUARANTEE is 'at-most-once', which remembers every response: leave "
            "IDEMPOTENCE_KEY_REMEMBER out."
        )


def _sentences(problem: object, entry: str = "") -> Iterator[str]:
    if isinstance(problem, Mapping):
        for name, inner in problem.items():
            yield from _sentences(inner, entry if name in ("key", "value") else f"{name!r}: ")
    elif isinstance(problem, list):
        for inner in problem:
            yield from _sentences(inner, entry)
    else:
        yield f"{entry}{problem}"


def foreign_settings(names: Iterable[object]) -> Iterator[str]:
    """Yield a sentence for each name that looks like a setting of this package, and is none."""
    for name in names:
        found = _FOREIGN.fullmatch(name) if isinstance(name, str) else None
        if found is None or found[0] in SETTINGS:
            continue
        rule = "" if found[0].startswith(NAMESPACE) else f": settings begin with {NAMESPACE}"
        known = [name.removeprefix(NAMESPACE) for name in SETTINGS]
        nearest = difflib.get_close_matches(found["rest"].upper(), known, 1)
        remedy = (
            f"Did you mean {NAMESPACE}{nearest[0]}?"
            if nearest
            else "The address of a store is IDEMPOTENCE_STORAGE_URI; the documentation lists all."
        )
        yield f"{name} is not a setting{rule}. {remedy}"


_FIXED = tuple(name for name, field in SETTINGS.items() if not field.metadata["live"])
_read_fixed = itemgetter(*_FIXED)

Identifier = str | bytes | int | UUID
IdentityLoader = Callable[[], Identifier | Sequence[Identifier | None] | None]
FailedPredicate = Callable[["Response"], bool]

_SUCCESS = b'"success"'


def result_failed(response: Response) -> bool:
    """Whether a response is a failed result.

    That is a status of 400 or more, or a JSON object whose `success` is `false`.
    """
    if response.status_code >= 400:
        return True
    chunks: object = response.response
    if type(chunks) is list and len(chunks) == 1:  # Flask makes it so: no copy is read
        [body] = chunks
        if type(body) is bytes and _SUCCESS not in body:
            return False
    if response.is_streamed or _SUCCESS not in response.data or not response.is_json:
        return False
    result = response.get_json(silent=True)
    return isinstance(result, dict) and result.get("success") is False


@dataclass(slots=True)
class Callbacks:
    """The application's own functions, which may be registered after `init_app`."""

    load_identity: IdentityLoader | None = None
    result_failed: FailedPredicate = result_failed


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
        return bool(SETTINGS[toggle].metadata["field"].deserialize(app.config[toggle]))
    except ValidationError as error:
        raise ConfigurationError(f"{toggle}: {error.messages[0]}") from None
