"""Helpers for the tests of applications, and the contract that every store has to pass."""

from __future__ import annotations

from flask import Flask

from ..stores.base import inspectable
from ..stores.memory import empty_memory_stores
from .clock import FakeClock, MovableClock, control_time
from .contract import StoreContract
from .runs import SignalRecorder, assert_ran_once, record_signals
from .tokens import token_for

__all__ = [
    "FakeClock",
    "MovableClock",
    "SignalRecorder",
    "StoreContract",
    "assert_ran_once",
    "clear_store",
    "control_time",
    "empty_memory_stores",
    "record_signals",
    "token_for",
]


def clear_store(app: Flask) -> int:
    """Remove the claims, records and tokens of an application: the keys under its own prefix.

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
