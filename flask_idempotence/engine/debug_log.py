"""The log in debug mode: guard, source of the identity, outcome and its reason."""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING

from flask.logging import default_handler, has_level_handler

if TYPE_CHECKING:
    from .claim import Attempt

_package_logger = logging.getLogger("flask_idempotence")
_logger = _package_logger.getChild("debug")

DECORATORS = {
    "token": "one_time_token",
    "lock": "no_repeat_submit",
    "key": "idempotent",
    "once": "once",
    "mutex": "lock",
}
"""The public name of each mode."""

_SENDER = re.compile(
    r"(?:[^ ]+ )??"  # host and path
    r"((?:loader|user|session|authorization|signed|credentials|account|ip)[:.{\[].*|\[.*|guest|everybody)",
    re.DOTALL,
)


def note(attempt: Attempt, text: str) -> None:
    """Log a line about an attempt at a guard, if its application is in debug mode.

    Args:
        attempt: the attempt.
        text: the line; it must hold no credentials, addresses, arguments, keys or tokens.
    """
    if attempt.app.debug:
        _show()
        name = DECORATORS.get(attempt.mode, attempt.mode)
        _logger.debug("Flask-Idempotence: %s at %r: %s", name, attempt.endpoint, text)


def note_identity(attempt: Attempt, identity: str) -> None:
    """Log the sources of an identity, and nothing else of it."""
    if attempt.app.debug:
        note(attempt, f"identity: {' and '.join(_sources(identity)) or 'nobody'}")


def _sources(identity: str) -> list[str]:
    found = _SENDER.fullmatch(identity)
    sender = found[1] if found else ""
    parts = json.loads(sender) if sender.startswith("[") else [sender]
    names = (re.split(r"[:.{\[]", part, maxsplit=1)[0] for part in parts)
    return list(dict.fromkeys("authorization" if name == "signed" else name for name in names))


def _show() -> None:
    """Show the lines on the console unless logging is set up otherwise, as Flask does its own."""
    if not (_logger.level or _package_logger.level):
        _logger.setLevel(logging.DEBUG)
    if not has_level_handler(_logger):
        _logger.addHandler(default_handler)
