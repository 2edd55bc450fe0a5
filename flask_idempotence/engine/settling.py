"""Settling: the end of a hold, on every way out of a view.

    after the view      its response is judged and recorded; with `within=`, the commit
    (after_request functions, the session's cookie)
    request_finished    settles, by the response that is sent; a streamed one when it is closed
    teardown            settles, where no response was sent

The record is taken first, so that `after_request` functions, CORS headers and cookies are applied
to a replay anew. The settlement comes last, so that a hook or a session that fails after the view
makes it a failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

from werkzeug.wsgi import ClosingIterator

from ..response.outcome import REPLAYED_HEADER, STORED_HEADER, add_kept_headers, keep_header
from ..response.refusals import LeaseLost, Refusal
from ..signals import lease_lost
from ..stores.base import Outcome
from .claim import Hold, holds_of, is_replayed
from .guard import KEPT, Settlement
from .retry_queue import PendingSettlement
from .streams import settle_when_closed

if TYPE_CHECKING:
    from flask import Response
    from flask.ctx import RequestContext

    from ..exactly_once.transaction import Transaction
    from .engine import Engine

_logger = logging.getLogger("flask_idempotence")


_BODYLESS = frozenset({204, 304})  # RFC 9110, section 6.4.1


class Settling:
    """Settles the holds of one application, each exactly once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def view_ended(self, hold: Hold, *, raised: bool) -> None:
        """Give the session of `within=` back: rolled back at once, where the view raised."""
        hold.raised = raised
        if hold.transaction is not None:
            if raised:
                hold.transaction.roll_back()
            else:
                hold.transaction.view_returned()

    def record(self, hold: Hold, response: Response) -> Response:
        """Judge and record the response that Flask made of the view's value.

        Runs again for the error page, where a function after it failed.

        Returns:
            The response; in its place an error page, where `within=` could not be committed.
        """
        if hold.settled:
            return response
        _make_error_page_whole(response, self._engine.config.key_max_body)
        hold.response_seen(response)
        # A failure stays one, whatever becomes of its response.
        hold.result_failed |= self._judged(hold, hold.guard.has_failed, self._engine, response)
        self._take_record(hold, response)
        if hold.transaction is None or hold.raised:
            return response
        hold.commits = not self._judged(hold, self._engine.hooks.has_failed, response)
        problem = self.settle(hold, failed=hold.result_failed)
        return response if problem is None else self._instead_of(response, hold, problem)

    def finish(self, context: RequestContext, response: Response) -> None:
        """Settle by the response that is sent: now, or when a streamed one is closed."""
        request = context.request
        for hold in reversed(holds_of(request)):
            if not hold.settled and hold.context == id(context):
                self._finish(hold, response)
            if hold.unacknowledged:
                response.headers[STORED_HEADER] = "false"
        add_kept_headers(request, response)

    def _finish(self, hold: Hold, response: Response) -> None:
        if hold.is_changed(response):
            # By the built-in rules: predicates of the application know the view's responses.
            changed = self._judged(hold, hold.guard.has_failed_since, self._engine, response)
            hold.result_failed |= changed
            if response.status_code >= 400 and response.status_code != hold.status:
                # An error that was made after the view: the record must not claim a success.
                self._take_record(hold, response)
        # A file is sent by the server itself, which forgets the response before it begins.
        if response.is_streamed and not response.direct_passthrough:
            hold.streaming = True
            settle_when_closed(
                response,
                settle=lambda broken: self.settle(hold, failed=hold.result_failed or broken),
                abandon=lambda: self.abandon(hold),
                defer=lambda end: None if hold.settled else self._engine.keeper.defer(end),
            )
        else:
            self.settle(hold, failed=hold.result_failed)

    def keep_replay(self, replay: Response, response: Response) -> Response:
        """Return the replay in place of the response that decorators outside the guard made of it.

        They had their part in the recorded response already. An answer of their own is passed on:
        an error, a redirect or a failed result may come from a check after the view.
        """
        if response is not replay:
            if self._is_answer_of_its_own(response, replay):
                return response
            response.close()
        keep_header(REPLAYED_HEADER, "true", status=replay.status_code)
        return replay

    def _is_answer_of_its_own(self, response: Response, replay: Response) -> bool:
        if response.status_code >= 300 and response.status_code != replay.status_code:
            return True
        has_failed = self._engine.hooks.has_failed
        try:
            return has_failed(response) and not has_failed(replay)
        except Exception:
            _logger.exception("Could not tell whether a replay was refused by a later check.")
            return True

    def _take_record(self, hold: Hold, response: Response) -> None:
        try:
            hold.guard.record(self._engine, hold, response)
        except Exception:
            _logger.exception("The response could not be recorded: %s", hold.attempt)

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
                failed = (
                    hold.raised
                    or hold.result_failed
                    or error is not None
                    or hold.transaction is not None
                )
                self.settle(hold, failed=failed)

    def abandon(self, hold: Hold) -> None:
        """Leave a claim to its lease: the view was killed, and what it did is unknown."""
        if hold.begin_settlement():
            self._engine.keeper.unwatch(hold, timeout=0)
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
            hold.unacknowledged = True
            until = hold.granted_at + config.max_hold
            keeper.watch(hold)
        else:
            until = self._engine.now() + max(hold.lease, config.lease) + hold.keep

        def ended(outcome: Outcome | None) -> None:
            keeper.unwatch(hold)
            self._settled(hold, settlement, outcome)

        keeper.finish(PendingSettlement(hold.attempt, settlement.operation, call, until, ended))

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
        request = context.request
        for hold in holds_of(request):
            if not hold.settled and not hold.in_view:  # a view may send the signal by itself
                self.view_ended(hold, raised=True)
        if is_replayed(request):
            _logger.error(
                "Flask-Idempotence: an exception followed a replay of %r. A decorator outside the "
                "guard gets a Response then: pass it on, or put the decorator inside the guard.",
                request.endpoint,
            )


def _make_error_page_whole(response: Response, most: int) -> None:
    """Read the body of an error page: Flask makes it by running the error as a WSGI application.

    It looks streamed, and is complete. Another WSGI application that a view returned is read as
    well, where it declares a length that can be recorded.
    """
    if not isinstance(response.response, ClosingIterator | chain):
        return
    length = response.content_length
    if response.status_code in _BODYLESS or (length is not None and length <= most):
        response.make_sequence()
