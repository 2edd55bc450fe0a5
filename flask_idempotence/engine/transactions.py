"""The transaction of an attempt: opened before its claim, begun after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..exactly_once.factory import TransactionFactory
    from ..exactly_once.transaction import Transaction
    from .claim import Attempt, Hold
    from .engine import Engine


def open_transaction(
    engine: Engine, attempt: Attempt, open_: TransactionFactory, *, claims: bool
) -> Transaction:
    """Open the transaction of an attempt; it has not begun yet.

    Args:
        engine: the application's.
        attempt: on whose behalf; its policy is to refuse.
        open_: opens it.
        claims: whether there is going to be a claim.

    Raises:
        ConfigurationError: it cannot be had in this session, or beside this store.
        StoreUnavailable: the database does not answer.
    """
    transaction = engine.policy.ask(
        attempt, "begin", lambda: open_(engine.store if claims else None)
    )
    if transaction is None:
        raise RuntimeError("What stands within= a session never runs without its transaction.")
    return transaction


def begin(hold: Hold, transaction: Transaction) -> Hold:
    """Begin a transaction, and have it settled with what is held.

    Raises:
        StoreUnavailable: the database does not answer; the hold is given up.
        Exception: it cannot be begun otherwise; the hold is given up, too.
    """
    engine = hold.engine
    hold.transaction = transaction
    try:
        engine.policy.ask(hold.attempt, "begin", transaction.begin)
    except Exception:
        engine.settling.settle(hold, failed=True)
        raise
    return hold
