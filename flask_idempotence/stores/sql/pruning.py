"""Rows that have expired are removed now and then, behind the back of the requests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ...errors import StoreError
from ..sql_extra import BATCH, REST

_logger = logging.getLogger("flask_idempotence")

EVERY = 500
"""Keys that this process writes between two rounds."""

_BATCHES = 20
"""In one round: more than can have been written since the last one, so that a backlog shrinks."""


class Pruning:
    """Counts what is written, and has expired rows removed by a thread when there was enough.

    Args:
        prune: removes so many rows at the most; returns how many there were.
    """

    def __init__(self, prune: Callable[[int], int]) -> None:
        self._prune = prune
        self.forget()

    def forget(self) -> None:
        """Begin anew: in a child process there is no thread."""
        self._lock = threading.Lock()
        self._written = 0
        self._is_at_it = False

    def written(self) -> None:
        """Count a key that was written."""
        self._written += 1  # a lost count does no harm
        if self._written < EVERY:
            return
        with self._lock:
            if self._is_at_it or self._written < EVERY:
                return
            self._written = 0
            self._is_at_it = True
        try:
            threading.Thread(
                target=self._run, name="flask-idempotence-pruning", daemon=True
            ).start()
        except RuntimeError:  # out of threads
            self._is_at_it = False

    def _run(self) -> None:
        try:
            for _ in range(_BATCHES):
                if self._prune(BATCH) < BATCH:
                    return
                time.sleep(REST)
        except StoreError as error:
            _logger.info("Expired rows could not be removed: %s", error)
        finally:
            self._is_at_it = False
