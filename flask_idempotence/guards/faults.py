"""Faults in how an application is set up, endpoint by endpoint."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from flask import Flask

_logger = logging.getLogger("flask_idempotence")


class Fault(NamedTuple):
    """A promise that cannot be kept.

    Attributes:
        endpoint: the endpoint that makes it.
        text: the reason and the remedy.
    """

    endpoint: str
    text: str


def close_endpoint(app: Flask, fault: Fault) -> None:
    """Answer every request to a faulty endpoint with a 500, and say so in the log.

    Its view must not run unguarded; the rest of the application goes on.
    """
    _logger.error(
        "Flask-Idempotence: every request to %r is answered 500. %s", fault.endpoint, fault.text
    )

    def refuse(**_: Any) -> NoReturn:
        raise ConfigurationError(fault.text)

    app.view_functions[fault.endpoint] = refuse
