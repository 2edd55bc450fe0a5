"""Log records that say which guarded request they belong to."""

from __future__ import annotations

import logging

from .engine.current import current_guard


class LogFilter(logging.Filter):
    """Puts the shortened key and the mode of the current guard on every record.

    A record gets the attributes `idempotence_key` and `idempotence_mode`, for a formatter to
    show. After a crash, the key leads from the business log to the claim in the store, by
    `flask idempotence inspect`. Nothing is ever filtered out.

    Add it to handlers, not to loggers: a logger's filter does not see what its children log. Where
    records are handled by another thread, add it to the `QueueHandler`.

    Args:
        name: as of `logging.Filter`; records of other loggers are passed on, and get the default.
        default: what a record gets outside a guarded request.
    """

    def __init__(self, name: str = "", *, default: str = "-") -> None:
        super().__init__(name)
        self._default = default

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes; what another one of these has added stays."""
        if not hasattr(record, "idempotence_key"):
            is_ours = super().filter(record)
            record.idempotence_key = (is_ours and current_guard.key) or self._default
            record.idempotence_mode = (is_ours and current_guard.mode) or self._default
        return True
