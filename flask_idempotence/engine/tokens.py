"""The issue of a token, and its redemption without a view."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from flask import Request

from ..request.body import untouched
from ..response.refusals import Refusal, StoreUnavailable
from ..signals import token_issued
from ..stores import process
from .debug_log import log_decision
from .engine import Engine
from .guard import Claim, Guard
from .store_calls import OBSERVED_SECONDS
from .values import Operation


class TokenIssue(Guard):
    """The issue of a token: it is answered by nothing but the store."""

    mode = "token"
    decorator = "one_time_token"


def issue_token(engine: Engine, request: Request | None, purpose: str | None) -> str:
    """Issue a token, bound to the request's signed-in user if there is one."""
    app, keyring = engine.services.app, engine.services.keyring
    is_on = engine.is_on(app, "IDEMPOTENCE_TOKEN_ENABLED")
    observes = engine.observes(app)
    claim = Claim(app, TokenIssue(), None if request is None else request.endpoint)
    try:
        with untouched(request) if observes and request is not None else nullcontext():
            token = engine.services.tokens.make(app, request, purpose)
    except Exception as error:
        if not observes:
            raise
        engine.report_observed(claim, "error", error)  # of an identity_loader
        token = engine.services.tokens.make(app, None, purpose)
    claim.key = keyring.store_key(app, "token", purpose or "-", token.name)
    subject = keyring.subject(app, token.bearer.text)
    put = partial(engine.store.put_token, claim.key, subject, engine.config.token_ttl)
    claim.observes = observes
    # A page keeps working where tokens are switched off, or only observed.
    call = partial(engine.store_calls.call, claim, "put_token", after_view=observes or not is_on)
    try:
        with engine.store.time_limit(OBSERVED_SECONDS) if observes else nullcontext():
            is_stored = call(lambda: put() is None)
    except Refusal as refusal:
        engine.announce(refusal, claim)
        raise
    if is_stored:  # else it cannot be spent, and `store_failed` was sent
        claim.emit(token_issued, purpose=purpose)
        log_decision(claim, "token issued", token.bearer)
    elif observes and is_on and engine.store_calls.rejects(claim):
        engine.report_observed(claim, StoreUnavailable.slug)
    return token.text


def redeem_token(
    engine: Engine, guard: Guard, request: Request | None, ask: Callable[[], Operation]
) -> None:
    """Spend a token, without a view."""
    process.current.notice_fork()
    claim = Claim(engine.services.app, guard, None if request is None else request.endpoint)
    try:
        if engine.enter_claimed(claim, ask(), ()).claim is not None:
            log_decision(claim, "token spent")
    except Refusal as refusal:
        engine.announce(refusal, claim)
        raise
