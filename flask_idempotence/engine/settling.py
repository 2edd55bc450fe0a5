"""Settling: the end of a claim, on every way out of a view.

    after the view      its response is judged and recorded; with `within=`, the commit
    (after_request functions, the session's cookie)
    request_finished    settles, by the response that is sent; a streamed one when it is closed
    teardown            settles, where no response was sent

A view that raises is judged by the response that Flask makes of its exception, or as failed where
it makes none; a BaseException abandons the claim to its lease. Each end but that one goes through
`settle`, the guard's `settle`, and `call_store`.

The record is taken first, so that `after_request` functions, CORS headers and cookies are applied
to a replay again. The settlement comes last, so that a hook or a session that fails after the view
makes it a failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from flask import (
    Request,
    Response,
    after_this_request,
    got_request_exception,
    has_request_context,
)
from werkzeug.wsgi import ClosingIterator

from ..config.runtime import FailedPredicate
from ..errors import COMMITTED_BELOW
from ..request.proxies import handle_user_exception, is_session_read
from ..response.headers import (
    EXPIRES_HEADER,
    REFUSAL_HEADER,
    REPLAYED_HEADER,
    RESPONSE_STATE,
    STORED_HEADER,
    ResponseState,
    add_headers,
    may_be_stored,
    response_state,
)
from ..response.refusals import LeaseLost, Refusal
from ..signals import completed, released
from ..stores.base import NO_FINGERPRINT, Outcome, Renewal
from .debug_log import log_decision, log_settlement, reason_of
from .guard import Claim, Services
from .keeper import Keeper, PendingSettlement
from .state import RequestState
from .streams import settle_at_close
from .values import LEAVE, SUCCESSES, Settlement, Verdict

if TYPE_CHECKING:
    from flask.ctx import RequestContext

    from ..exactly_once.transaction import Transaction

_logger = logging.getLogger("flask_idempotence")

R = TypeVar("R")

LOOKS_STREAMED = (ClosingIterator, chain)
_BODYLESS = frozenset({204, 304})  # RFC 9110, section 6.4.1

_CONSTRAINED = (
    "Flask-Idempotence: a constraint of the database has refused what a view with within= wrote, "
    "and the client gets a %d. For a duplicate of a unique index, write in "
    "session.begin_nested(), catch IntegrityError around it, and answer 409: %s"
)


class Settling:
    """Settles the claims of one application, each exactly once."""

    def __init__(self, services: Services, keeper: Keeper, now: Callable[[], float]) -> None:
        self._services = services
        self._config = services.config
        self._store = keeper.store
        self._store_calls = keeper.store_calls
        self._keeper = keeper
        self._now = now

    # The ways out of a view

    def view(
        self, claim: Claim, state: RequestState, context: RequestContext, call: Callable[[], R]
    ) -> R:
        """Run a view under its claim, and return its value.

        Where it raises, `record` and `send` settle by the response that Flask makes of the
        exception, and `tear_down` where it makes none.
        """
        request = context.request  # alone: a function that held its context would never be freed

        def record(response: Response) -> Response:
            return self.record(claim, request, response)

        state.enter(claim, context)
        raised = True
        try:
            value = call()
            raised = False
            return value
        except Exception as error:
            if claim.transaction is not None:
                claim.transaction.error = type(error)
            raise
        except BaseException:
            self.abandon(claim)
            raise
        finally:
            claim.leave(raised=raised)
            # Runs after the view's own `after_this_request` callbacks.
            after_this_request(record)

    def record(self, claim: Claim, request: Request, response: Response) -> Response:
        """Judge and record the response that Flask made of the view's value.

        Runs again for the error page, where a function after it failed. It returns an error page
        where `within=` could not be committed.
        """
        if claim.settled:
            return response
        if isinstance(response.response, LOOKS_STREAMED):
            # Flask makes an error page by running the error as a WSGI application: it looks
            # streamed, and is complete. Another such application that a view returned is read as
            # well, where it declares a length that can be recorded.
            length = response.content_length
            is_short = length is not None and length <= self._config.key_max_body
            if is_short or response.status_code in _BODYLESS:
                response.make_sequence()
        claim.status, claim.body = response.status_code, response.response
        if is_refusal(request, response):
            claim.judge(Verdict.NOT_RUN if claim.is_stopped else Verdict.FAILED)
        elif self.judged(claim, claim.guard.has_failed, response):
            claim.judge(Verdict.FAILED)
        if claim.guard.makes_records:
            self._take_record(claim, request, response)
        if claim.transaction is None or claim.has_raised:
            return response
        if self.judged(claim, self._services.callbacks.result_failed, response):
            claim.judge(Verdict.FINAL)
        problem = self.settle(claim)
        return response if problem is None else self._error_page(response, claim, problem)

    def send(self, context: RequestContext, state: RequestState, response: Response) -> None:
        """Settle by the response that is sent: now, or when a streamed one is closed."""
        request = context.request
        for_all: ResponseState | None = vars(request).get(RESPONSE_STATE)
        is_streamed = type(response.response) is not list and response.is_streamed
        is_sent_later = is_streamed and request.method != "HEAD"
        is_sent_later = is_sent_later and response.status_code not in _BODYLESS
        for claim in reversed(state.claims):
            if not claim.settled and claim.context == id(context):
                if is_refusal(request, response):
                    claim.judge(Verdict.FAILED)
                self._send_one(claim, request, response, is_streamed=is_sent_later)
            if claim.unacknowledged:
                response.headers[STORED_HEADER] = "false"
            elif (
                claim.remembered_for is not None
                and claim.is_whole
                and response.status_code == claim.status
            ):
                response.headers[EXPIRES_HEADER] = str(int(claim.remembered_for))
            if (
                claim.transaction is not None
                and claim.transaction.is_constrained
                and response.status_code >= 500
            ):
                _logger.warning(_CONSTRAINED, response.status_code, claim)
        if state.replayed is not None and state.replayed == response.status_code:
            response.headers.setdefault(REPLAYED_HEADER, "true")
        if for_all is not None:
            add_headers(for_all, response)
        if is_streamed:
            # Not the response: a body that holds its request's context would never be collected.
            response_state(request).may_be_stored = may_be_stored(response)

    def _send_one(
        self, claim: Claim, request: Request, response: Response, *, is_streamed: bool
    ) -> None:
        # A compressed or streamed body does not count as another one: it cannot be judged.
        is_same_body = (
            response.response is claim.body
            or response.is_streamed
            or "Content-Encoding" in response.headers
        )
        if response.status_code != claim.status or not is_same_body:
            if self.judged(claim, claim.guard.has_failed_since, response):
                claim.judge(Verdict.FAILED)
            is_error = response.status_code >= 400 and response.status_code != claim.status
            if is_error and claim.guard.makes_records:
                # It was made after the view: the record must not claim a success.
                self._take_record(claim, request, response)
            claim.status = response.status_code
        # A file is sent by the server itself, which forgets the response before it begins.
        if is_streamed and not response.direct_passthrough:
            claim.streaming = True
            settle_at_close(response, claim, self._keeper, self.settle, self.abandon)
        else:
            self.settle(claim)

    def tear_down(self, claim: Claim, error: BaseException | None) -> None:
        """Settle a claim that no response has settled, when its context ends."""
        if error is not None and not isinstance(error, Exception):
            self.abandon(claim)
            return
        # A transaction is committed only where a response says so.
        if claim.has_raised or error is not None or claim.transaction is not None:
            claim.judge(Verdict.FAILED)
        self.settle(claim)

    def abandon(self, claim: Claim) -> None:
        """Leave a claim to its lease: the view was killed, and its effect is unknown."""
        if claim.begin_settlement():
            self._keeper.unwatch(claim, timeout=0)
            if claim.transaction is not None:
                claim.transaction.roll_back()
                if claim.transaction.is_committed_below:
                    self.close(claim)
                    return
            _logger.warning("A view was killed; its claim ends with its lease: %s", claim)

    # Judging

    @staticmethod
    def judged(claim: Claim, predicate: FailedPredicate, response: Response) -> bool:
        try:
            return predicate(response)
        except Exception:
            # The side effect may have happened: running it again is worse.
            _logger.exception("Cannot tell whether the result failed: %s", claim)
            return False

    def _take_record(self, claim: Claim, request: Request, response: Response) -> None:
        if (for_all := vars(request).get(RESPONSE_STATE)) is not None:
            add_headers(for_all, response)  # no cache may store the replay of a page with a token
        try:
            if is_session_read():
                response.vary.add("Cookie")  # as Flask does, but after the record
            ttl, records = claim.ttl or claim.guard.ttl, self._services.records
            claim.record, is_whole = records.remember(claim, response, ttl)
            claim.is_whole = is_whole and claim.guard.on_repeat == "replay"
        except Exception:
            _logger.exception("The response could not be recorded: %s", claim)

    def _error_page(self, response: Response, claim: Claim, problem: Exception) -> Response:
        """Answer a failed commit as if the view had raised it."""
        response.close()
        app = claim.app
        if isinstance(problem, Refusal):
            problem.apply(self._config)
        try:
            raise problem
        except Exception as error:  # noqa: BLE001 - without a handler, Flask raises it again
            page = app.make_response(handle_user_exception(app, error))
        return problem.mark(page) if isinstance(problem, Refusal) else page

    # The settlement

    def settle(self, claim: Claim) -> Exception | None:
        """Settle a claim by its verdict; one that is settled already stays as it is.

        Returns the reason for which the transaction of `within=` was not committed: the caller
        answers with it in place of the view's response.
        """
        if not claim.begin_settlement():
            return None
        try:
            if claim.transaction is not None:
                return self._end_transaction(claim, claim.transaction)
            self.close(claim)
        except Exception:
            # The view has run, and its answer must go out. The claim ends with its lease.
            _logger.exception("The settlement failed: %s", claim)
        return None

    def _end_transaction(self, claim: Claim, transaction: Transaction) -> Exception | None:
        if claim.verdict not in SUCCESSES:
            try:
                transaction.roll_back()
            finally:  # a failure that is remembered is stored outside the transaction
                self.close(claim)
            return None
        settlement, completion, is_sent = LEAVE, None, []
        try:
            if claim.is_granted:
                self._keeper.unwatch(claim)
                settlement = claim.guard.settle(claim, self._now())
                completion = claim.completion(settlement)
            outcome = self._store_calls.call(
                claim,
                "commit",
                partial(transaction.commit, completion),
                on_unknown=lambda: is_sent.append(True),
            )
        except Exception as error:  # noqa: BLE001 - the caller answers with it
            transaction.error = type(error)
            # Once a COMMIT was sent and its answer is not known, the claim must not be given up.
            if not is_sent:
                claim.facts, claim.by_hand = frozenset({Verdict.FAILED}), None
                try:
                    self.close(claim)
                except Exception:
                    _logger.exception("The claim ends with its lease: %s", claim)
            return error
        if transaction.late_error is not None:
            _report(claim, transaction.late_error)
        if claim.is_granted:
            if outcome is Outcome.OK and claim.app.debug:
                log_decision(claim, f"{reason_of(claim)}: committed, with the record")
            self._acknowledge(claim, settlement, outcome)
        return LeaseLost() if outcome is Outcome.STALE else None

    def close(self, claim: Claim) -> None:
        """End a claim at the store, as its guard says; a claim without a key has no entry."""
        if claim.transaction is not None and claim.transaction.is_committed_below:
            _logger.error("%s %s", COMMITTED_BELOW, claim)
            claim.record, claim.is_whole = claim.guard.unknown(claim), False
        if not claim.is_granted:
            return
        is_quiet = not claim.owner or self._keeper.unwatch(claim)
        now = self._now()
        settlement = claim.guard.settle(claim, now)
        claim.unacknowledged = settlement.call == "complete"
        send = partial(self.call_store, claim, settlement, now + settlement.seconds)
        outcome: Outcome | None = None
        if settlement.call == "leave":
            outcome = Outcome.OK
        elif is_quiet:
            outcome = self._store_calls.call(claim, settlement.call, send, after_view=True)
        if claim.app.debug:
            log_settlement(claim, settlement, outcome)
        if outcome is not None:
            claim.unacknowledged = False
            self._acknowledge(claim, settlement, outcome)
        elif settlement.call != "put_token":
            self._retry(claim, settlement, send)

    def call_store(self, claim: Claim, settlement: Settlement, until: float) -> Outcome:
        key, owner, store = claim.key, claim.owner, self._store
        if settlement.call == "complete":
            return store.complete(*claim.completion(settlement))
        if settlement.call == "put_token" and (token := claim.operation.token) is not None:
            services = self._services
            # A clock that is behind the one of the issue does not lengthen it.
            left = min(token.expires - services.tokens.clock(), self._config.token_ttl)
            if left > 0:
                subject = services.keyring.subject(claim.app, token.bearer.text)
                store.put_token(key, subject, left)
            return Outcome.OK
        left = until - self._now()
        if settlement.call == "release" or left <= 0:
            return store.release(key, owner)
        outcome = store.renew([Renewal(key, owner, left)])[0]
        if outcome is Outcome.STALE:
            # The keeper could not run (a view that blocks all other threads): if the key is free,
            # hold it again, for requests that queued behind this view are still repeats.
            store.claim(key, owner, NO_FINGERPRINT, left, hold_after_crash=0)
        return outcome

    def _retry(self, claim: Claim, settlement: Settlement, send: Callable[[], Outcome]) -> None:
        """Leave a settlement to the keeper, which repeats it until the store acknowledges it."""
        if settlement.call == "complete":  # until then its claim is renewed: its view has run
            until = claim.granted_at + self._config.max_hold
            self._keeper.watch(claim)
        else:
            longest = max(claim.lease, self._config.lease) + claim.operation.hold_after_crash
            until = self._now() + longest

        def ended(outcome: Outcome | None) -> None:
            self._keeper.unwatch(claim)
            self._acknowledge(claim, settlement, outcome)

        pending = PendingSettlement(claim, settlement.call, send, until, ended)
        self._keeper.retry(pending)

    def _acknowledge(self, claim: Claim, settlement: Settlement, outcome: Outcome | None) -> None:
        if outcome is Outcome.OK:
            claim.remembered_for = settlement.seconds if settlement.call == "complete" else None
            frees = settlement.call in ("release", "put_token")
            claim.emit(released if frees else completed)
        elif outcome is Outcome.STALE:
            claim.lose("settle", self._now())


def _report(claim: Claim, error: Exception) -> None:
    """Report an error of the application's listeners: its transaction is committed already."""
    _logger.error(
        "A listener raised an error after the commit, which holds: %s", claim, exc_info=error
    )
    if has_request_context():
        app = claim.app
        got_request_exception.send(app, _async_wrapper=app.ensure_sync, exception=error)


def is_refusal(request: Request, response: Response) -> bool:
    """Whether a response is the refusal of another guard, under any status: no result."""
    state: ResponseState | None = vars(request).get(RESPONSE_STATE)
    return state is not None and bool(state.refusals) and REFUSAL_HEADER in response.headers
