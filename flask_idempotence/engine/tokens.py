"""Tokens outside a guard: issued for a page, redeemed by hand."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask, Request

from ..response.refusals import Refusal
from ..signals import token_issued
from ..stores import process
from ..stores.base import TokenOutcome
from .claim import Attempt
from .debug_log import note
from .engine import engine_of
from .guard import Finding, Guard, Question


def issue_token(app: Flask, request: Request | None, purpose: str | None) -> str:
    """Issue a token, bound to the request's signed-in user if there is one.

    Raises:
        ValueError: the purpose is not of letters, digits, `_`, `.` and `-`, 64 at most.
        StoreUnavailable: the store does not answer, and the policy is to reject.
    """
    process.current.notice_fork()
    engine = engine_of(app)
    services = engine.services
    token = services.tokens.make(app, request, purpose)
    attempt = Attempt(app, "token", None if request is None else request.endpoint)
    key = services.keyring.store_key(app, "token", purpose or "-", token.name)
    attempt.key = key
    subject = services.keyring.subject(app, token.bearer.text)
    # A page keeps working where tokens are switched off.
    is_on = engine.is_on(app, "IDEMPOTENCE_TOKEN_ENABLED")
    put = engine.policy.before_view if is_on else engine.policy.after_view

    def store() -> bool:
        engine.store.put_token(key, subject, services.config.token_ttl)
        return True

    try:
        is_stored = put(attempt, "put_token", store)
    except Refusal as refusal:
        engine.announce(refusal, attempt)
        raise
    if is_stored:  # else it cannot be spent, and `store_failed` was sent
        attempt.emit(token_issued, purpose=purpose)
        note(attempt, "token issued", token.bearer)
    return token.text


def redeem_token(
    app: Flask, endpoint: str | None, guard: Guard[object], ask: Callable[[], Question]
) -> None:
    """Spend a token outside a guard.

    Raises:
        Refusal: the token cannot be spent.
    """
    process.current.notice_fork()
    engine, attempt = engine_of(app), Attempt(app, "token", endpoint)
    try:
        question = ask()
        slot = engine.slot_of(attempt, guard, question)
        if question.spends is not None:
            found = engine.spend(attempt, guard, question, slot, question.spends)
            if isinstance(found, TokenOutcome):
                guard.answer(Finding(question, slot, found))  # which raises
            note(attempt, "token spent")
    except Refusal as refusal:
        engine.announce(refusal, attempt)
        raise
