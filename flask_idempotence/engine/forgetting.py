"""Forgetting: release a finished operation."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from ..response.refusals import Refusal, Running
from ..stores.base import Outcome, inspectable

if TYPE_CHECKING:
    from .claim import Attempt
    from .engine import Engine
    from .guard import Guard, Question

_logger = logging.getLogger("flask_idempotence")


def forget(engine: Engine, attempt: Attempt, guard: Guard[object], question: Question) -> bool:
    """Remove the record of an operation; never a claim, which is its owner's.

    Returns:
        Whether there was one, and this call has removed it.

    Raises:
        Running: it is running.
        StoreUnavailable: the store does not answer.
        ConfigurationError: the keys of the store cannot be removed by hand.
    """
    engine.notice_fork()
    store, policy = inspectable(engine.store), engine.policy
    key = engine.seal(attempt, guard, question).key
    try:
        while entry := policy.before_view(attempt, "peek", partial(store.peek, key)):
            if entry.lease:
                raise Running(remaining=entry.lease)
            if entry.kind != "record":
                return False
            discard = partial(store.discard, [(key, entry)])
            if policy.before_view(attempt, "discard", discard) == [Outcome.OK]:
                _logger.info("Forgotten by hand: %s", attempt)
                return True
            # Another call was faster, and the operation may run again: read its state once more.
    except Refusal as refusal:
        refusal.apply(engine.config)
        raise
    return False
