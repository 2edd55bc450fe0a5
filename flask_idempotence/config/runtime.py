"""The parts of the configuration that may change after `init_app`: toggles and user callbacks.

All other settings are fixed then; a late change has no effect, and is reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter

from flask import Flask, Response
from marshmallow import ValidationError, fields

from ..errors import ConfigurationError
from .reading import foreign_settings
from .settings import SETTINGS, Config

_logger = logging.getLogger("flask_idempotence")

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
