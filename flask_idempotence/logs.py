"""Log records with the key and mode of their guarded request."""

from __future__ import annotations

import logging

from .engine.current import current_guard


class LogFilter(logging.Filter):
    """Puts the shortened key and the mode of the current guard on every record.

    A record gets the attributes `idempotence_key` and `idempotence_mode`, for a formatter to
    show. After a crash, the key leads from the business log to the claim in the store, by
    `flask idempotence inspect`. Nothing is ever filtered out.

    Add it to handlers, not to loggers: a logger's filter does not see the records of its children.
    Where another thread handles the records, add it to the `QueueHandler`.

    Example:
        handler = logging.StreamHandler()
        handler.addFilter(LogFilter())
        handler.setFormatter(logging.Formatter("%(idempotence_key)s %(message)s"))

    Args:
        name: as of `logging.Filter`; records of other loggers get the default.
        default: value of both attributes outside a guarded request.
    """

    def __init__(self, name: str = "", *, default: str = "-") -> None:
        super().__init__(name)
        self._default = default

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes, unless another `LogFilter` has added them."""
        if not hasattr(record, "idempotence_key"):
            is_ours = super().filter(record)
            record.idempotence_key = (is_ours and current_guard.key) or self._default
            record.idempotence_mode = (is_ours and current_guard.mode) or self._default
        return True
