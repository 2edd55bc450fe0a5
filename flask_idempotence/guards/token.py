"""Token mode: the server issues a token, and a request that spends it runs once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from ..engine.claim import Attempt, Hold
from ..engine.engine import Engine
from ..engine.guard import KEPT, Settlement, ViewGuard
from ..engine.store_calls import checked_policy
from ..engine.tokens import PURPOSE_RULE, is_purpose
from ..errors import ConfigurationError
from ..response.refusals import TokenMissing
from ..signals import released
from .wrapping import decorator_of, guarded

if TYPE_CHECKING:
    from flask import Request

    from ..config.settings import Config

P = ParamSpec("P")
R = TypeVar("R")


class TokenGuard(ViewGuard):
    """What token mode does in its own way."""

    mode = "token"
    toggle = "IDEMPOTENCE_TOKEN_ENABLED"

    def __init__(
        self, purpose: str | None, *, restore_on_failure: bool, on_store_error: str | None
    ) -> None:
        self.purpose = purpose
        self.on_store_error = checked_policy("one_time_token", on_store_error)
        self.restore_on_failure = restore_on_failure

    def enter(self, engine: Engine, attempt: Attempt, request: Request) -> Hold | None:
        """Check the request's token, and spend it."""
        sent = engine.tokens.sent_with(request)
        if sent is None:
            engine.near_misses.look_for_token(attempt.endpoint, request)
            raise _missing(engine.config)
        token = engine.tokens.read(attempt, sent, self.purpose)
        if engine.held(request, token.key):
            return None
        spent = engine.tokens.spend(attempt, request, token)
        if spent is None:
            return None
        hold = Hold(engine, self, attempt, token.key)
        hold.detail = spent
        return hold

    def settle(self, engine: Engine, hold: Hold, *, failed: bool) -> Settlement:
        """Leave it spent, or put it back once if the route asked for that."""
        by_hand = hold.failed_by_hand is True
        if failed and (self.restore_on_failure or by_hand) and not hold.detail.again:
            put_back = partial(engine.tokens.put_back, hold.detail)
            return Settlement(released, "put_token", put_back, repeatable=False)
        return KEPT


def _missing(config: Config) -> TokenMissing:
    header, field = config.token_header, config.token_field
    return TokenMissing(
        f"This request needs a one-time token, in the header {header} or in the form field "
        f"{field}. Load the page again, or fetch a token."
    ).because(f"there is neither a header {header} nor a form field {field}")


@overload
def one_time_token(purpose: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def one_time_token(
    purpose: str | None = None,
    *,
    restore_on_failure: bool = False,
    on_store_error: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def one_time_token(
    purpose: Any = None,
    *,
    restore_on_failure: bool = False,
    on_store_error: str | None = None,
) -> Any:
    """Let a request in once for each token that the server issued.

    Also bare: `@one_time_token`. The token travels in the header `IDEMPOTENCE_TOKEN_HEADER`, or in
    the form field `IDEMPOTENCE_TOKEN_FIELD`; it is spent before the view runs, and stays spent
    whatever comes of it.

    Args:
        purpose: the purpose that the token must have been issued for; None for no purpose.
        restore_on_failure: put the token back once after a failed result or an exception, with
            the lifetime it had left, so that a form can be corrected and sent again.
        on_store_error: `"reject"` or `"allow"`, in place of `IDEMPOTENCE_ON_STORE_ERROR`.

    Raises:
        ConfigurationError: no token could have such a purpose, or an argument is wrong.
    """
    if callable(purpose):
        guard = TokenGuard(None, restore_on_failure=False, on_store_error=None)
        return guarded(guard, purpose)
    if purpose is not None and not (isinstance(purpose, str) and is_purpose(purpose)):
        raise ConfigurationError(f"one_time_token(purpose={purpose!r}): {PURPOSE_RULE}")
    guard = TokenGuard(
        purpose, restore_on_failure=restore_on_failure, on_store_error=on_store_error
    )
    return decorator_of(guard)
