"""Settling: what ends a hold, on every way out of a view.

A response settles, whether the view returned it or an error handler made it; where none comes
about, the end of the request does. A streamed response settles when it is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from .attempts import Hold, holds_of
from .backlog import Unsettled
from .responses import STORED_HEADER
from .signals import lease_lost
from .stores.base import Outcome
from .streams import settle_when_closed

if TYPE_CHECKING:
    from flask import Response
    from flask.ctx import RequestContext

    from .engine import Engine
    from .modes import Settlement

_logger = logging.getLogger("flask_idempotence")


_BODYLESS = frozenset({204, 304})  # RFC 9110, section 6.4.1


class Settling:
    """Settles the holds of one application, each exactly once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def answer(self, hold: Hold, response: Response) -> Response:
        """Settle by a response: now, or where it is streamed when it is closed."""
        if hold.settled:
            return response
        if hold.streaming:
            # A hook failed, and this is the error page: what was to be streamed is dropped.
            self.settle(hold, failed=hold.result_failed)
            return self._marked(hold, response)
        hold.streaming = self._is_streamed(hold, response)
        hold.result_failed = self._has_failed(hold, response)
        if hold.streaming:
            settle_when_closed(
                response,
                settle=lambda broken: self.settle(hold, failed=hold.result_failed or broken),
                abandon=lambda: self.abandon(hold),
                defer=lambda end: None if hold.settled else self._engine.keeper.defer(end),
            )
        else:
            self.settle(hold, failed=hold.result_failed)
        return self._marked(hold, response)

    @staticmethod
    def _marked(hold: Hold, response: Response) -> Response:
        if hold.untold:
            response.headers[STORED_HEADER] = "false"
        return response

    @staticmethod
    def _is_streamed(hold: Hold, response: Response) -> bool:
        if response.is_streamed and hold.raised and _is_complete(response):
            # What Flask makes of abort() looks streamed, since it runs the error as an
            # application of its own; but the view is over, and the page is there.
            response.make_sequence()
        # A file is sent by the server itself, which forgets the response before it begins.
        return response.is_streamed and not response.direct_passthrough

    def _has_failed(self, hold: Hold, response: Response) -> bool:
        try:
            return hold.guard.has_failed(self._engine, hold, response)
        except Exception:
            # The side effect may have happened: a repeat is the greater evil.
            _logger.exception("Could not tell whether the result failed: %s", hold.attempt)
            return False

    def tear_down(self, context: RequestContext, error: BaseException | None) -> None:
        """Settle what no response has settled, when the context that took the holds ends.

        A copy of the context, in a thread that the view has started, ends earlier.
        """
        for hold in reversed(holds_of(context.request)):
            if hold.settled or hold.streaming or hold.context != id(context):
                continue
            if error is not None and not isinstance(error, Exception):
                self.abandon(hold)
            else:
                self.settle(hold, failed=hold.raised or error is not None)

    def abandon(self, hold: Hold) -> None:
        """Leave a claim to its lease: the view was killed, and what it did is unknown."""
        if hold.begin_settlement():
            self._engine.keeper.unwatch(hold, within=0)
            _logger.warning("A view was killed; its claim ends with its lease: %s", hold.attempt)

    def settle(self, hold: Hold, *, failed: bool) -> None:
        """Settle a hold; what it came to is told by signals.

        Args:
            hold: the hold; one that is settled stays as it is.
            failed: whether its result failed, unless the view has decided that by hand.
        """
        if not hold.begin_settlement():
            return
        try:
            self._carry_out(
                hold, failed=failed if hold.failed_by_hand is None else hold.failed_by_hand
            )
        except Exception:
            # The view has run, and its answer must go out. The claim ends with its lease.
            _logger.exception("The settlement failed: %s", hold.attempt)

    def _carry_out(self, hold: Hold, *, failed: bool) -> None:
        quiet = self._engine.keeper.unwatch(hold)
        settlement = hold.guard.settle(self._engine, hold, failed=failed)
        if settlement.call is None:
            hold.attempt.emit(settlement.signal)
            return
        outcome = None
        if quiet:
            outcome = self._engine.policy.tell(hold.attempt, settlement.operation, settlement.call)
        if outcome is not None:
            self._settled(hold, settlement, outcome)
        elif settlement.repeatable:
            self._leave_to_keeper(hold, settlement, settlement.call)

    def _leave_to_keeper(
        self, hold: Hold, settlement: Settlement, call: Callable[[], Outcome]
    ) -> None:
        keeper, config = self._engine.keeper, self._engine.config
        if settlement.keeps_claim:
            hold.untold = True
            until = hold.granted_at + config.max_hold
            keeper.watch(hold)
        else:
            until = self._engine.now() + max(hold.lease, config.lease) + hold.keep

        def ended(outcome: Outcome | None) -> None:
            keeper.unwatch(hold)
            self._settled(hold, settlement, outcome)

        keeper.finish(Unsettled(hold.attempt, settlement.operation, call, until, ended))

    def _settled(self, hold: Hold, settlement: Settlement, outcome: Outcome | None) -> None:
        if outcome is Outcome.OK:
            hold.attempt.emit(settlement.signal)
        elif outcome is Outcome.STALE:
            self.lost(hold, "settle")

    def lost(self, hold: Hold, during: str) -> None:
        """Note that a claim was lost, and say so once."""
        if not hold.lost:
            hold.lost = True
            _logger.warning("A lease was lost: %s", hold.attempt)
            hold.attempt.emit(lease_lost, during=during)

    def raised(self, context: RequestContext) -> None:
        """Note that nobody handled an exception, though it may be none of the view's own."""
        for hold in holds_of(context.request):
            hold.raised = True


def _is_complete(response: Response) -> bool:
    return "Content-Length" in response.headers or response.status_code in _BODYLESS
