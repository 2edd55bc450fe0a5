"""Side effects that happen once: tokens, a no-repeat lock and idempotency keys for Flask.

PYTEST_DONT_REWRITE: else pytest warns where an application has imported the package before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .engine.current import current_guard
from .errors import ConfigurationError, IdempotenceError, StoreError
from .extension import Idempotence
from .guards.key import idempotent
from .guards.lock import no_repeat_submit
from .guards.placement import exempt
from .guards.token import one_time_token
from .response.refusals import (
    KeyInProgress,
    KeyInvalid,
    KeyMissing,
    KeyRepeated,
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
    Refusal,
    RepeatSubmit,
    ResponseNotStored,
    Running,
    StoreUnavailable,
    TokenError,
    TokenExpired,
    TokenInvalid,
    TokenMissing,
    TokenNotYours,
    TokenSpent,
)
from .signals import (
    claimed,
    completed,
    lease_lost,
    observed,
    rejected,
    released,
    replayed,
    store_failed,
    token_issued,
    token_spent,
)
from .stores import MemoryStore, Store

if TYPE_CHECKING:  # imported with their first use
    from .stores.redis import RedisStore as RedisStore
    from .stores.sql import SqlStore as SqlStore

__version__ = "0.1.0"

__all__ = [
    "ConfigurationError",
    "Idempotence",
    "IdempotenceError",
    "KeyInProgress",
    "KeyInvalid",
    "KeyMissing",
    "KeyRepeated",
    "KeyReused",
    "LeaseLost",
    "MemoryStore",
    "OutcomeUnknown",
    "RedisStore",
    "Refusal",
    "RepeatSubmit",
    "ResponseNotStored",
    "Running",
    "SqlStore",
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
    "exempt",
    "idempotent",
    "lease_lost",
    "no_repeat_submit",
    "observed",
    "one_time_token",
    "rejected",
    "released",
    "replayed",
    "store_failed",
    "token_issued",
    "token_spent",
]


def __getattr__(name: str) -> type[RedisStore | SqlStore]:
    """Import a store's class at its first use; redis-py takes longer than all the rest."""
    if name == "RedisStore":
        from .stores.redis import RedisStore

        return RedisStore
    if name == "SqlStore":
        from .stores.uris import sql_store_class

        return sql_store_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
