"""Settling: what ends a hold, on every way out of a view.

A response settles, whether the view returned it or an error handler made it; where none comes
about, the end of the request does. A streamed response settles when it is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .attempts import Hold, holds_of
from .backlog import Unsettled
from .errors import LeaseLost, Refusal
from .modes import KEPT, Settlement
from .responses import STORED_HEADER
from .signals import lease_lost
from .stores.base import Outcome
from .streams import settle_when_closed

if TYPE_CHECKING:
    from flask import Response
    from flask.ctx import RequestContext

    from .engine import Engine
    from .transactions import Transaction

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
        hold.streaming = self._is_streamed(hold, response) and hold.transaction is None
        hold.result_failed = self._judged(
            hold, hold.guard.has_failed, self._engine, hold, response
        )
        if hold.transaction is not None and not hold.raised:
            failed = self._judged(hold, self._engine.hooks.result_failed, response)
            hold.commits = not failed
        if hold.streaming:
            settle_when_closed(
                response,
                settle=lambda broken: self.settle(hold, failed=hold.result_failed or broken),
                abandon=lambda: self.abandon(hold),
                defer=lambda end: None if hold.settled else self._engine.keeper.defer(end),
            )
        else:
            problem = self.settle(hold, failed=hold.result_failed)
            if problem is not None:
                return self._instead_of(response, hold, problem)
        return self._marked(hold, response)

    def _instead_of(self, response: Response, hold: Hold, problem: Exception) -> Response:
        """Answer what could not be committed as if the view had raised it."""
        response.close()
        hold.raised = True
        app = hold.attempt.app
        if not isinstance(problem, Refusal):
            return app.make_response(app.handle_user_exception(problem))
        self._engine.finish(problem)
        return problem.mark(app.make_response(app.handle_user_exception(problem)))

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

    @staticmethod
    def _judged(hold: Hold, predicate: Callable[..., bool], *about: Any) -> bool:
        try:
            return predicate(*about)
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
                # What is to be committed needs an answer that says so.
                failed = hold.raised or error is not None or hold.transaction is not None
                self.settle(hold, failed=failed)

    def abandon(self, hold: Hold) -> None:
        """Leave a claim to its lease: the view was killed, and what it did is unknown."""
        if hold.begin_settlement():
            self._engine.keeper.unwatch(hold, within=0)
            if hold.transaction is not None:
                hold.transaction.roll_back()
            _logger.warning("A view was killed; its claim ends with its lease: %s", hold.attempt)

    def settle(self, hold: Hold, *, failed: bool) -> Exception | None:
        """Settle a hold; what it came to is told by signals.

        Args:
            hold: the hold; one that is settled stays as it is.
            failed: whether its result failed, unless the view has decided that by hand.

        Returns:
            What is to be told instead of the view's answer: its writes are not committed.
        """
        if not hold.begin_settlement():
            return None
        # What an exception has rolled back cannot be kept.
        is_undone = hold.transaction is not None and hold.raised
        if hold.failed_by_hand or (hold.failed_by_hand is False and not is_undone):
            failed = hold.failed_by_hand
        try:
            if hold.transaction is not None:
                return self._end(hold, hold.transaction, failed=failed)
            self._carry_out(hold, failed=failed)
        except Exception:
            # The view has run, and its answer must go out. The claim ends with its lease.
            _logger.exception("The settlement failed: %s", hold.attempt)
        return None

    def _end(self, hold: Hold, transaction: Transaction, *, failed: bool) -> Exception | None:
        kept_by_hand = hold.failed_by_hand is False and not hold.raised
        if not failed and (hold.commits or kept_by_hand):
            try:
                return self._commit(hold, transaction)
            except Exception as error:  # noqa: BLE001 - it is told instead of the answer
                return error
        transaction.roll_back()
        if hold.key:
            # Where the failure is remembered, it is on its own.
            self._carry_out(hold, failed=failed)
        return None

    def _commit(self, hold: Hold, transaction: Transaction) -> Exception | None:
        engine, settlement, sent = self._engine, KEPT, []
        if hold.key:
            engine.keeper.unwatch(hold)
            settlement = hold.guard.settle(engine, hold, failed=False)
        try:
            outcome = engine.policy.ask(
                hold.attempt,
                "commit",
                lambda: transaction.commit(settlement.completion),
                unsure=lambda: sent.append(True),
            )
        except Exception as error:  # noqa: BLE001 - it is told instead of the answer
            # Once a COMMIT was sent and its answer is not known, the claim must not be given up.
            if hold.key and not sent:
                self._carry_out(hold, failed=True)
            return error
        if hold.key:
            self._settled(hold, settlement, outcome)
        return LeaseLost() if outcome is Outcome.STALE else None

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
