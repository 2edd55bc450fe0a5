"""The transactions of `within=`: opened before the claim, begun after it, ended with it.

The end is a commit together with the record, or a rollback.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from ..errors import COMMITTED_BELOW
from ..response.refusals import LeaseLost
from ..signals import completed
from ..stores.base import Completion, Outcome
from .debug_log import note_commit
from .guard import SUCCESSES, Complete, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..exactly_once.factory import TransactionFactory
    from ..exactly_once.transaction import Transaction
    from ..stores.base import Store
    from .claim import Attempt, Claim
    from .guard import Guard
    from .keeper import Keeper
    from .store_calls import FailurePolicy


_logger = logging.getLogger("flask_idempotence")


def open_transaction(
    policy: FailurePolicy, attempt: Attempt, within: TransactionFactory, store: Store | None
) -> Transaction:
    """Open the transaction of an attempt; it has not begun yet.

    Raises:
        ConfigurationError: the session cannot have one, or not beside this store.
        StoreUnavailable: the database does not answer.
    """
    transaction = policy.before_view(attempt, "begin", partial(within, store))
    if transaction is None:
        raise RuntimeError("A view within= a session never runs without its transaction.")
    return transaction


def begin_transaction(
    policy: FailurePolicy,
    settle: Callable[[Claim], object],
    claim: Claim,
    transaction: Transaction,
) -> Claim:
    """Begin a transaction, which is settled with the claim.

    Raises:
        Exception: it cannot begin, and the claim is released: StoreUnavailable where the database
            does not answer.
    """
    claim.transaction = transaction
    try:
        policy.before_view(claim.attempt, "begin", transaction.begin)
    except Exception:
        claim.judge(Verdict.FAILED)
        settle(claim)
        raise
    return claim


def shares_transaction(guard: Guard[object], held: Claim) -> bool:
    """Whether a view runs in the transaction of a guard further out, or needs none."""
    within, transaction = guard.within, held.transaction
    if within is None:
        return True
    return transaction is not None and within.session() is transaction.session


def end_transaction(
    claim: Claim,
    transaction: Transaction,
    *,
    policy: FailurePolicy,
    keeper: Keeper,
    now: Callable[[], float],
    carry_out: Callable[[Claim], None],
) -> Exception | None:
    """Commit or roll back a transaction by the verdict of its claim, and end the claim.

    Args:
        claim: the claim.
        transaction: its transaction.
        policy: the failure policy.
        keeper: the keeper of the lease.
        now: the engine's clock.
        carry_out: ends the claim apart from the transaction.

    Returns:
        The reason for which it was not committed although the verdict was to commit.
    """
    if claim.verdict not in SUCCESSES:
        try:
            transaction.roll_back()
            judge_commit_below(claim, transaction)
        finally:  # a failure that is remembered is stored outside the transaction
            carry_out(claim)
        return None
    completion = None
    is_sent: list[bool] = []
    try:
        if claim.sealed.key:
            keeper.unwatch(claim)
            completion = _completion(claim, now())
        outcome = policy.before_view(
            claim.attempt,
            "commit",
            partial(transaction.commit, completion),
            on_unknown=lambda: is_sent.append(True),
        )
    except Exception as error:  # noqa: BLE001 - the caller answers with it
        # Once a COMMIT was sent and its answer is not known, the claim must not be given up.
        if not is_sent:
            claim.result, claim.by_hand = Verdict.FAILED, None
            judge_commit_below(claim, transaction)
            try:
                carry_out(claim)
            except Exception:
                _logger.exception("The claim ends with its lease: %s", claim.attempt)
        return error
    if claim.sealed.key and outcome is Outcome.OK:
        claim.attempt.emit(completed)
        if claim.attempt.traced is not None:
            note_commit(claim)
    if outcome is Outcome.STALE:
        claim.lose("settle", now())
        return LeaseLost()
    return None


def judge_commit_below(claim: Claim, transaction: Transaction) -> bool:
    """Whether a transaction was committed below its session: the outcome is unknown then."""
    if not transaction.is_committed_below:
        return False
    _logger.error("%s %s", COMMITTED_BELOW, claim.attempt)
    claim.by_hand = Verdict.UNKNOWN
    if claim.sealed.key:
        claim.record = claim.guard.unknown(claim.sealed)
    return True


def _completion(claim: Claim, now: float) -> Completion | None:
    settlement = claim.guard.settle(claim.ending(now))
    if not isinstance(settlement, Complete):
        return None
    key, fingerprint = claim.sealed
    return Completion(key, claim.owner, fingerprint, settlement.record, settlement.ttl)
