"""Removes expired rows now and then, in a thread of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ..errors import StoreError
from .process import call_in_children, start_daemon

_logger = logging.getLogger("flask_idempotence")

BATCH = 100
"""Rows that one statement of pruning removes: it locks them for milliseconds."""

REST = 0.02
"""Seconds between two batches, for other writers."""

EVERY = 500
"""Keys that this process writes between two rounds."""

_BATCHES = 20
"""In one round: more than can have been written since the last one, so that a backlog shrinks."""


class Pruning:
    """Counts the keys that are written, and prunes when there were enough.

    Args:
        prune: removes up to a number of rows; returns how many it removed.
    """

    def __init__(self, prune: Callable[[int], int]) -> None:
        self._prune = prune
        self._begin()
        call_in_children(self._begin)

    def _begin(self) -> None:
        self._written = 0
        self._is_running = False

    def count(self) -> None:
        """Count a key that was written."""
        self._written += 1  # a lost count does no harm, nor does a second thread
        if self._written >= EVERY and not self._is_running:
            self._written, self._is_running = 0, True
            if not start_daemon(self._run, "flask-idempotence-pruning"):
                self._is_running = False

    def _run(self) -> None:
        try:
            for _ in range(_BATCHES):
                if self._prune(BATCH) < BATCH:
                    return
                time.sleep(REST)
        except StoreError as error:
            _logger.info("Expired rows could not be removed: %s", error)
        finally:
            self._is_running = False
