"""The log in debug mode: the decision about each guarded request, its reasons, its settlement."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from flask.logging import default_handler, has_level_handler

from ..request.identity import Identity
from ..stores.base import Outcome
from .claim import Claim
from .guard import Settlement, Verdict

_package_logger = logging.getLogger("flask_idempotence")
_logger = _package_logger.getChild("debug")


def note(claim: Claim, decision: str, identity: Identity | None = None) -> None:
    """In debug mode, log the decision about a claim, with its facts.

    The decision must hold no credentials, addresses, arguments, keys or tokens. Of the identity,
    by default the question's, the line has the sources only.
    """
    if not claim.app.debug:
        return
    _show()
    facts = (" ".join(_facts(claim, identity)) + claim.route).lstrip()
    text = f"{decision} ({facts})" if facts else decision
    _logger.debug("Flask-Idempotence: %s at %r: %s", claim.guard.decorator, claim.endpoint, text)


def _facts(claim: Claim, identity: Identity | None) -> Iterator[str]:
    if (question := claim.traced) is not None:
        identity = identity or question.identity
    if identity is not None:
        yield f"identity={identity.sources or 'none'}"
    if question is not None:
        if question.lease:
            yield f"lease={question.lease:g}s"
        if question.wait:
            yield f"wait={question.wait:g}s"
        if claim.waited:
            yield f"waited={claim.waited:.3g}s"
    if claim.short_key is not None:
        yield f"key={claim.short_key}"


def note_settlement(claim: Claim, settlement: Settlement, outcome: Outcome | None) -> None:
    """Log how a claim was settled, and why; without an answer of the store, outcome is None."""
    ends = {
        "keep": "token stays spent",
        "release": "released",
        "renew": f"held for another {settlement.seconds:.3g} s",
        "complete": f"record kept for {settlement.seconds:g} s",
        "put_token": "token put back",
    }
    if claim.owner:
        ends["keep"] = f"held until {claim.lease.length:g} s after the claim"
    text = f"{reason(claim)}: {ends[settlement.call]}"
    if outcome is None:
        text += ", but the store has not acknowledged it"
    elif outcome is Outcome.STALE:
        text += ", but the lease was lost before"
    note(claim, text)


def reason(claim: Claim) -> str:
    if claim.verdict is Verdict.RELEASED:
        return "current_guard.release()"
    if claim.verdict is Verdict.KEPT:
        return "current_guard.keep()"
    if claim.verdict is Verdict.CUT_OFF:
        return "the body of the request broke off"
    raised = "an exception" if claim.has_raised else ""
    if not claim.status:
        return raised or "end of the block"
    failed = ", a failure" if claim.verdict > Verdict.SUCCEEDED else ""
    return f"status {claim.status}{raised and ' after an exception'}{failed}"


def _show() -> None:
    """Show the lines on the console unless logging is set up otherwise, as Flask does its own."""
    if not (_logger.level or _package_logger.level):
        _logger.setLevel(logging.DEBUG)
    if not has_level_handler(_logger):
        _logger.addHandler(default_handler)
