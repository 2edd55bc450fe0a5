"""Token mode: the server issues a token, and the request that spends it runs once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, overload

from flask import Request

from ..config.settings import OnStoreError
from ..engine.guard import Claim, ViewGuard, argument
from ..engine.values import FAILURES, LEAVE, Found, Operation, Settlement, Verdict
from ..errors import ConfigurationError
from ..request.tokens import check_purpose
from ..response.refusals import (
    TokenExpired,
    TokenInvalid,
    TokenMissing,
    TokenNotYours,
    TokenSpent,
)
from ..stores.base import TokenOutcome
from . import arguments
from .wrapping import Decorator, S, decorator_of


def _purpose(label: str, value: object) -> object:
    try:
        check_purpose(value)
    except ValueError as error:
        raise ConfigurationError(f"{label.replace('...', repr(value))}: {error}") from None
    return value


@dataclass(eq=False)
class TokenGuard(ViewGuard):
    """The arguments of `one_time_token`, and the rules of token mode at one route."""

    mode = "token"
    decorator = "one_time_token"
    toggle = "IDEMPOTENCE_TOKEN_ENABLED"
    place = 10
    refuses_with = (TokenMissing, TokenInvalid, TokenExpired, TokenNotYours, TokenSpent)

    purpose: str | None = argument(_purpose)
    restore_on_failure: bool = argument(arguments.flag, default=False)
    unless: Callable[[], object] | None = argument(arguments.function)
    observe: bool | None = argument(arguments.flag)
    on_store_error: OnStoreError | None = arguments.of_setting("on_store_error")

    def prepare(self) -> None:
        self.scope = self.purpose or "-"

    def operation(self, request: Request) -> Operation:
        sent = self.services.tokens.sent_with(request)
        if sent is None:
            self.services.near_misses.look_for_token(request.endpoint, request)
            header, field = self.services.config.token_header, self.services.config.token_field
            raise TokenMissing(
                f"This request needs a one-time token, in the header {header} or in the form "
                f"field {field}. Load the page again, or fetch a token."
            ).because(f"there is neither a header {header} nor a form field {field}")
        return self.operation_of(sent, request)

    def operation_of(self, text: str, request: Request | None) -> Operation:
        if not isinstance(text, str):
            raise TokenInvalid().because("it is not a string")
        token = self.services.tokens.read(self.services.app, request, text, self.purpose)
        return Operation(token.name, token=token, identity=token.bearer)

    def answer(self, claim: Claim, found: Found) -> NoReturn:
        operation, token = claim.operation, claim.operation.token
        if found is TokenOutcome.NOT_YOURS:
            is_user = operation.identity is not None and bool(operation.identity.text)
            sender = "another user than this one" if is_user else "a user, and this is a guest"
            raise TokenNotYours().because(f"it was issued to {sender}")
        if token is not None:
            self.services.tokens.check_age(token)
        raise TokenSpent().because("it has been spent, or the store no longer knows it")

    def settle(self, claim: Claim, _now: float) -> Settlement:
        verdict = claim.verdict
        is_due = self.restore_on_failure or verdict in (Verdict.RELEASED, Verdict.CUT_OFF)
        return Settlement("put_token") if is_due and verdict in FAILURES else LEAVE


@overload
def one_time_token(purpose: S, /) -> S: ...


@overload
def one_time_token(
    purpose: str | None = None,
    *,
    restore_on_failure: bool = False,
    unless: Callable[[], object] | None = None,
    observe: bool | None = None,
    on_store_error: OnStoreError | None = None,
) -> Decorator: ...


def one_time_token(purpose: object = None, **given: object) -> object:
    """Run a view once for each one-time token that the server has issued.

    Also bare: `@one_time_token`. The token travels in the header `IDEMPOTENCE_TOKEN_HEADER`, or in
    the form field `IDEMPOTENCE_TOKEN_FIELD`. It is spent before the view runs, and stays spent
    even if the view fails.

    Args:
        purpose: the purpose for which the token must have been issued; None for no purpose.
        restore_on_failure: put the token back after each failed result or exception, until it
            expires, with the lifetime it had left, so that a form can be corrected and sent
            again. There is no limit on attempts.
        unless: called without arguments once a request, before the sender is identified and the
            store asked; if it returns true, the view runs unguarded.
        observe: whether to count and log only what the guard would have done. None: the setting
            `IDEMPOTENCE_OBSERVE`.
        on_store_error: when the store does not answer, `"reject"` the request or `"allow"` it to
            run unguarded. None: the setting `IDEMPOTENCE_ON_STORE_ERROR`.

    Raises:
        ConfigurationError: no token could have such a purpose, or an argument is wrong.
    """
    return decorator_of(TokenGuard, purpose, given, "purpose")
