"""Settings at request time: the toggles that may be flipped, and all others that may not."""

from __future__ import annotations

import logging
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from marshmallow import ValidationError, fields

from ..errors import ConfigurationError
from .misnamed import foreign_settings
from .settings import SETTINGS, Config

if TYPE_CHECKING:
    from flask import Flask

_logger = logging.getLogger("flask_idempotence")

_FIXED = tuple(name for name, field in SETTINGS.items() if not field.metadata["live"])
_read_fixed = itemgetter(*_FIXED)
_boolean = fields.Boolean()


class Switches:
    """Reads the toggles of one application, and notices late changes of its other settings.

    Args:
        app: the application; every setting gets its value or default in `app.config`.
        config: its settings as validated.
    """

    def __init__(self, app: Flask, config: Config) -> None:
        for name, field in SETTINGS.items():
            if field.metadata["live"]:
                app.config[name] = getattr(config, field.name)
            else:
                app.config.setdefault(name, getattr(config, field.name))
        self._seen: tuple[Any, ...] = _read_fixed(app.config)

    def is_on(self, app: Flask, toggle: str) -> bool:
        """Whether a mode is switched on, and the extension as a whole.

        Raises:
            ConfigurationError: a toggle was set to what is neither true nor false.
        """
        if _read_fixed(app.config) != self._seen:
            self._report(app)
        config = app.config
        if config["IDEMPOTENCE_ENABLED"] is True and config[toggle] is True:
            return True
        return _truth(app, "IDEMPOTENCE_ENABLED") and _truth(app, toggle)

    @staticmethod
    def report_foreign(app: Flask) -> None:
        """Warn of entries that were made after `init_app` under a name that is no setting."""
        for problem in foreign_settings(app.config, SETTINGS):
            _logger.warning(
                "Flask-Idempotence: %s It was set after init_app, which is too late.", problem
            )

    def _report(self, app: Flask) -> None:
        now = _read_fixed(app.config)
        changed = [
            name for name, was, is_ in zip(_FIXED, self._seen, now, strict=True) if was != is_
        ]
        self._seen = now
        _logger.warning(
            "Flask-Idempotence: changed after init_app, which is too late; the old value stays in "
            "force: %s",
            ", ".join(changed),
        )


def _truth(app: Flask, toggle: str) -> bool:
    value = app.config[toggle]
    if value is True or value is False:
        return bool(value)
    try:
        return bool(_boolean.deserialize(value))
    except ValidationError as error:
        raise ConfigurationError(f"{toggle}: {error.messages[0]}") from None
