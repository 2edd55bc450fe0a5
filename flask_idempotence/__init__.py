"""Side effects that happen once: one-time tokens and a no-repeat lock for Flask."""

from __future__ import annotations

from .attempts import current_guard
from .errors import (
    ConfigurationError,
    IdempotenceError,
    LeaseLost,
    Refusal,
    RepeatSubmit,
    StoreError,
    StoreUnavailable,
    TokenError,
    TokenExpired,
    TokenInvalid,
    TokenMissing,
    TokenNotYours,
    TokenSpent,
)
from .extension import Idempotence
from .guards.lock import no_repeat_submit
from .guards.token import one_time_token
from .signals import (
    claimed,
    completed,
    lease_lost,
    rejected,
    released,
    store_failed,
    token_issued,
    token_spent,
)
from .stores import MemoryStore, RedisStore, Store

__version__ = "0.1.0"

__all__ = [
    "ConfigurationError",
    "Idempotence",
    "IdempotenceError",
    "LeaseLost",
    "MemoryStore",
    "RedisStore",
    "Refusal",
    "RepeatSubmit",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "TokenError",
    "TokenExpired",
    "TokenInvalid",
    "TokenMissing",
    "TokenNotYours",
    "TokenSpent",
    "claimed",
    "completed",
    "current_guard",
    "lease_lost",
    "no_repeat_submit",
    "one_time_token",
    "rejected",
    "released",
    "store_failed",
    "token_issued",
    "token_spent",
]
