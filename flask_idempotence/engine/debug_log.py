"""The log in debug mode: each decision about a request, with its reason."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from flask.logging import default_handler, has_level_handler

from ..request.identity import Identity
from ..stores.base import Outcome
from .guard import Claim
from .values import Settlement, Verdict

_logger = logging.getLogger("flask_idempotence")
_debug_logger = _logger.getChild("debug")

_REASONS = {
    Verdict.RELEASED: "current_guard.release()",
    Verdict.KEPT: "current_guard.keep()",
    Verdict.CUT_OFF: "the body of the request broke off",
}


def log_decision(claim: Claim, decision: str, identity: Identity | None = None) -> None:
    """In debug mode, log the decision about this claim, with its facts.

    The decision must hold no credentials, addresses, arguments, keys or tokens. Of the
    identity, by default the operation's, the line has the sources only.
    """
    if not claim.app.debug:
        return
    _show_debug_log()
    facts = (" ".join(_facts(claim, identity)) + claim.route).lstrip()
    text = f"{decision} ({facts})" if facts else decision
    _debug_logger.debug(
        "Flask-Idempotence: %s at %r: %s", claim.guard.decorator, claim.endpoint, text
    )


def _facts(claim: Claim, identity: Identity | None) -> Iterator[str]:
    operation = claim.operation
    if (identity := identity or operation.identity) is not None:
        yield f"identity={identity.sources or 'none'}"
    for name, seconds in (("lease", operation.lease), ("wait", operation.wait)):
        if seconds:
            yield f"{name}={seconds:g}s"
    if claim.waited:
        yield f"waited={claim.waited:.3g}s"
    if claim.short_key is not None:
        yield f"key={claim.short_key}"


def log_settlement(claim: Claim, settlement: Settlement, outcome: Outcome | None) -> None:
    """Log how the claim was settled, and why; outcome is None without the store's answer."""
    ends = {
        "leave": "token stays spent",
        "release": "released",
        "renew": f"held for another {settlement.seconds:.3g} s",
        "complete": f"record stored for {settlement.seconds:g} s",
        "put_token": "token put back",
    }
    if claim.owner:
        ends["leave"] = f"held until {claim.lease:g} s after the claim"
    text = f"{reason_of(claim)}: {ends[settlement.call]}"
    if outcome is None:
        text += ", but the store has not acknowledged it"
    elif outcome is Outcome.STALE:
        text += ", but the lease was lost before"
    log_decision(claim, text)


def reason_of(claim: Claim) -> str:
    """The reason for the verdict."""
    if (verdict := claim.verdict) in _REASONS:
        return _REASONS[verdict]
    raised = "an exception" if claim.has_raised else ""
    if not claim.status:
        return raised or "end of the block"
    failed = "" if verdict is Verdict.SUCCEEDED else ", a failure"
    return f"status {claim.status}{raised and ' after an exception'}{failed}"


def _show_debug_log() -> None:
    """Show the lines on the console unless logging is set up otherwise, as Flask does its own."""
    if not (_debug_logger.level or _logger.level):
        _debug_logger.setLevel(logging.DEBUG)
    if not has_level_handler(_debug_logger):
        _debug_logger.addHandler(default_handler)
