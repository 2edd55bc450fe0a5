"""`current_guard`: the innermost guard around the running code."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from flask import Flask, has_request_context

from ..errors import ConfigurationError
from ..request.proxies import current_request
from .engine import engine_of
from .guard import Claim
from .state import claims_around, open_blocks, outlived_blocks, state_of
from .values import Verdict

_TOO_LATE = (
    "current_guard.{call} comes too late: {why}. Call it in the view, in an error handler, or in "
    "a function given to after_this_request()."
)


def operations_around(app: Flask) -> Sequence[Claim]:
    """Return the claims of operations and steps around the running code, outermost first."""
    around = claims_around(after_view=False)
    return [
        claim
        for claim in around
        if claim.app is app and claim.owner and (claim.guard.takes_steps or claim.step_of)
    ]


def unguarded_operation() -> Claim | None:
    """Return the claim of the outermost operation around the running code that has no lease."""
    if has_request_context():
        state = state_of(current_request())
        is_claimed = any(claim.owner and claim.guard.takes_steps for claim in state.claims)
        if state.unguarded is not None and not is_claimed:
            return state.unguarded
    blocks = open_blocks()
    return next((each for each in blocks if each.guard.takes_steps and not each.owner), None)


def check_time_of_steps(operation: Claim, ttl: float) -> None:
    """Raise a ConfigurationError where finished steps would outlive the record of an operation."""
    if operation.guard.has_steps and ttl < operation.guard.ttl:
        raise ConfigurationError(
            f"current_guard.keep(ttl={ttl:g}) is less than the {operation.guard.ttl:g} seconds "
            "for which steps of this route are remembered: after that time, the next operation "
            "under this key would find those of an earlier attempt done. Keep it for longer, or "
            "give the route this ttl."
        )


class CurrentGuard:
    """The innermost guard around the running code; a no-op where there is none.

    After the view, and in a streamed body, it is the innermost guard of the request. Where guards
    are nested, `ensure_held` is about all of them. In a block of `Idempotence.lock`, `release` and
    `keep` are about the guard around it.
    """

    @property
    def _claim(self) -> Claim | None:
        return next(reversed(claims_around()), None)

    @property
    def mode(self) -> str | None:
        """`"token"`, `"lock"`, `"key"`, `"once"`, `"step"` or `"mutex"`; None without a guard."""
        return None if (claim := self._claim) is None else claim.guard.mode

    @property
    def key(self) -> str | None:
        """The shortened hash that log lines and signals show, or None."""
        return None if (claim := self._claim) is None else claim.short_key

    @property
    def replayed(self) -> bool:
        """Whether this request is answered by a remembered response.

        A replay does not run the view: only `after_request` functions can see True here.
        """
        return has_request_context() and state_of(current_request()).replayed is not None

    @property
    def lost(self) -> bool:
        """Whether the claim has ended while the view ran, as far as is known."""
        return (claim := self._claim) is not None and claim.lost

    def release(self) -> None:
        """Release the claim after the view, even a successful one: the request may run again."""
        self._decide(Verdict.RELEASED)

    def keep(self, *, ttl: float | timedelta | None = None) -> None:
        """Count this request as done, even if the view fails.

        Args:
            ttl: seconds, or a `timedelta`, for which the response is remembered; behind a key
                only. None: those of the route.

        Raises:
            ConfigurationError: the claim is settled already; `ttl` is no duration; the guard is
                no key; the response has been recorded already; or `ttl` is less than that of the
                route, and the key is a one-time token or the route has begun a step.
        """
        self._decide(Verdict.KEPT, ttl)

    @staticmethod
    def _decide(verdict: Verdict, ttl: float | timedelta | None = None) -> None:
        # A named lock is released anyway: the guard around it is meant.
        claim = next((each for each in reversed(claims_around()) if each.guard.by_verdict), None)
        observed = state_of(current_request()).observed if has_request_context() else None
        if observed is not None:
            observed.decide(claim, verdict, ttl)
        if claim is None:
            return
        checked = None if ttl is None else claim.guard.time_to_keep(ttl)
        call = "release()" if verdict is Verdict.RELEASED else "keep()"
        if claim.settled:
            raise ConfigurationError(_TOO_LATE.format(call=call, why="the claim is settled"))
        if checked is not None:
            if claim.record is not None:
                why = "the response has been recorded"
                raise ConfigurationError(_TOO_LATE.format(call="keep(ttl=...)", why=why))
            check_time_of_steps(claim, checked)
            claim.ttl = checked
        claim.by_hand = verdict

    def ensure_held(self) -> None:
        """Renew the lease in one round trip; call it before a step that cannot be undone.

        At least two thirds of a lease are left afterwards. It narrows the gap in which a frozen
        process loses its claim without noticing; it does not close it.

        Raises:
            LeaseLost: the claim has ended, or another owner has it; also in a task or thread that
                has outlived the block in which it was started, and in a forked child.
            StoreUnavailable: the store does not answer, and the policy is to reject.
        """
        for claim in (*outlived_blocks(), *claims_around()):
            if claim.owner:
                engine_of(claim.app).keeper.ensure_held(claim)


current_guard: CurrentGuard = CurrentGuard()
"""The guard around the running view: `mode`, `key`, `replayed`, `lost`; `release()`, `keep()`,
`ensure_held()`."""
