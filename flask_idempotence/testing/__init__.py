"""Helpers for the tests of applications, and the contract that every store has to pass."""

from __future__ import annotations

from ..stores.memory import empty_memory_stores
from .applications import (
    SignalRecorder,
    assert_ran_once,
    clear_store,
    record_signals,
    temporary_database,
    token_for,
)
from .clock import FakeClock, MovableClock, control_time
from .contract import StoreContract

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
    "temporary_database",
    "token_for",
]
