"""Settings at request time: toggles, which may be flipped, and all others, which may not."""

from __future__ import annotations

import logging
from operator import itemgetter
from typing import TYPE_CHECKING

from marshmallow import ValidationError, fields

from ..errors import ConfigurationError
from .reading import foreign_settings
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
            value = getattr(config, field.name)
            app.config[name] = value if name not in _FIXED else app.config.get(name, value)
        self._seen: tuple[object, ...] = _read_fixed(app.config)

    def is_on(self, app: Flask, toggle: str) -> bool:
        """Whether a mode is switched on, and the extension as a whole.

        Raises:
            ConfigurationError: a toggle is neither true nor false.
        """
        config = app.config
        if (now := _read_fixed(config)) != self._seen:
            pairs = zip(_FIXED, self._seen, now, strict=True)
            _logger.warning(
                "Flask-Idempotence: changed after init_app, which is too late; the old value "
                "stays in force: %s",
                ", ".join(name for name, was, is_ in pairs if was != is_),
            )
            self._seen = now
        if config["IDEMPOTENCE_ENABLED"] is True and config[toggle] is True:
            return True
        return _truth(app, "IDEMPOTENCE_ENABLED") and _truth(app, toggle)

    @staticmethod
    def report_foreign(app: Flask) -> None:
        """Warn of entries that were made after `init_app` under a name that is no setting."""
        for problem in foreign_settings(app.config):
            _logger.warning(
                "Flask-Idempotence: %s It was set after init_app, which is too late.", problem
            )


def _truth(app: Flask, toggle: str) -> bool:
    try:
        return bool(_boolean.deserialize(app.config[toggle]))
    except ValidationError as error:
        raise ConfigurationError(f"{toggle}: {error.messages[0]}") from None
