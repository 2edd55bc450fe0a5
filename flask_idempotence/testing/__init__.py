"""Helpers for the tests of applications, and the contract that every store has to pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..stores.base import inspectable
from .clock import FakeClock
from .contract import StoreContract
from .recorder import SignalRecorder, record_signals

if TYPE_CHECKING:
    from flask import Flask

__all__ = ["FakeClock", "SignalRecorder", "StoreContract", "clear_store", "record_signals"]


def clear_store(app: Flask) -> int:
    """Forget all claims and tokens of an application: the keys under its own prefix, no others.

    Args:
        app: an application on which the extension is registered.

    Returns:
        How many keys were removed.

    Raises:
        ConfigurationError: its store cannot be listed.
    """
    state = app.extensions["idempotence"]
    removed: int = inspectable(state.store).clear(f"{state.config.prefix}:")
    return removed
