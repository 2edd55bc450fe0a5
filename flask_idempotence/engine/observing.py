"""The Observe mode: what guards would have done to a request is counted, and nothing is done.

A claim of it has a key of its own, and its completion no body: a guard that is enforced later
never goes by them. Tokens alone are spent, or they would not be counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, TypeVar

from flask import Request, Response
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException

from ..errors import ConfigurationError
from ..request.body import NotKept, check_whole, read_whole, untouched
from ..request.input import CHECKED
from ..request.proxies import current_request
from ..response.refusals import Refusal, ResponseNotStored, StoreUnavailable
from ..stores.base import Done
from .engine import Engine
from .guard import Claim, ViewGuard
from .settling import LOOKS_STREAMED, is_refusal
from .state import Observed
from .store_calls import OBSERVED_SECONDS
from .values import Operation, Unguarded, Verdict

_logger = logging.getLogger("flask_idempotence")

T = TypeVar("T")

ERROR = "error"  # the reason where a guard or a function of the application would have raised

# The reason where a guard cannot tell, since a body is too long to be kept for it.
UNOBSERVED = "unobserved"

REPLAY = "replay"


class Observation(Observed):
    """What the guards of one request have observed."""

    def __init__(self, engine: Engine) -> None:
        self.claims: list[Claim] = []  # those that were granted, outermost first
        self.store_key = ""  # the store key that the last guard would have claimed
        self._engine = engine
        self._keys: set[str] = set()
        self._left = OBSERVED_SECONDS

    def ask(self, request: Request, guard: ViewGuard) -> Claim | None:
        """Claim the operation of a guard, and report what would have become of the request.

        Returns its claim, where it is the first.
        """
        claim = Claim(self._engine.services.app, guard, request.endpoint)
        claim.observes, self.store_key = True, ""
        claim.input = request.environ.get(CHECKED)
        try:
            with untouched(request):
                if self._calls_application(guard):  # which may read the body, or not
                    try:
                        read_whole(request)
                    except HTTPException as error:
                        raise NotKept(f"the body cannot be read: {error.name}") from None
                if guard.unless is not None and guard.unless():
                    return None
                check_whole(request.environ)
                operation = guard.operation(request)
            if not isinstance(operation, Unguarded):
                return self._claim(claim, operation)
        except NotKept as cause:
            self._engine.report_observed(claim, UNOBSERVED, because=str(cause))
        except Exception as error:  # noqa: BLE001 - the view runs in any case
            reason = error.slug if isinstance(error, Refusal) else ERROR
            is_answer = isinstance(error, HTTPException)  # such as a refusal, or 413
            self._engine.report_observed(claim, reason, None if is_answer else error)
        return None

    def _calls_application(self, guard: ViewGuard) -> bool:
        """Whether the guard calls functions of the application to name its operation."""
        load_identity = self._engine.services.callbacks.load_identity
        return any(map(callable, (guard.unless, load_identity, guard.key, guard.compare)))

    def _claim(self, claim: Claim, operation: Operation) -> Claim | None:
        engine = self._engine
        engine.identify(claim, operation)
        self.store_key = claim.key
        engine.identify(claim, operation.observed(engine.config.lease))
        if claim.key in self._keys:
            return None
        self._keys.add(claim.key)
        found, guard = self._in_time(partial(engine.claim, claim)), claim.guard
        if isinstance(found, Claim):
            self.claims.append(claim)
            return claim
        if found is None:
            if engine.store_calls.rejects(claim):
                raise StoreUnavailable
            return None
        if guard.on_repeat == "reject" or not (isinstance(found, Done) and found.matches):
            guard.answer(claim, found)  # it raises
        else:
            is_recordable = found.record == REPLAY.encode()
            engine.report_observed(claim, REPLAY if is_recordable else ResponseNotStored.slug)
        return None

    def decide(self, enforced: Claim | None, verdict: Verdict, ttl: Any) -> None:
        """Note a decision of the view, unless it is about an enforced guard further in."""
        for claim in self.claims[-1:]:
            if enforced is None or not enforced.is_granted or enforced.number < claim.number:
                claim.by_hand = verdict
                with suppress(ConfigurationError):
                    claim.ttl = None if ttl is None else claim.guard.time_to_keep(ttl)

    def record(self, claim: Claim, response: Response) -> Response:
        """Judge the response of a view, which is returned as it is."""
        try:
            if is_refusal(current_request(), response):
                claim.judge(Verdict.NOT_RUN)
            elif self._engine.settling.judged(claim, claim.guard.has_failed, _copy_of(response)):
                claim.judge(Verdict.FAILED)
            is_recordable = _is_recordable(response, self._engine.config.key_max_body)
            claim.status, claim.record = (
                response.status_code,
                REPLAY.encode() if is_recordable else None,
            )
        except Exception:
            _logger.exception("What was observed could not be judged: %s", claim)
        return response

    def finish(self, response: Response | None) -> None:
        """End the claims by the response that is sent; None where there is none."""
        for claim in reversed(self.claims):
            if not claim.begin_settlement():
                continue
            if response is None:
                claim.judge(Verdict.FAILED)
            elif response.status_code != claim.status:
                predicate = claim.guard.has_failed_since
                if self._engine.settling.judged(claim, predicate, _copy_of(response)):
                    claim.judge(Verdict.FAILED)
            self._settle(claim)

    def _settle(self, claim: Claim) -> None:
        engine, now = self._engine, self._engine.now()
        try:
            claim.record = claim.record or ResponseNotStored.slug.encode()
            # By the keeper, if it were enforced.
            claim.was_renewed = now - claim.granted_at > claim.operation.renewal / 3
            settlement = claim.guard.settle(claim, now)
            if settlement.call != "leave":
                until = now + settlement.seconds
                send = partial(engine.settling.call_store, claim, settlement, until)
                call = partial(engine.store_calls.call, claim, settlement.call, send)
                self._in_time(partial(call, after_view=True))
        except Exception:
            _logger.exception("What was observed could not be settled: %s", claim)

    def _in_time(self, call: Callable[[], T]) -> T | None:
        """Call the store while there is time for it; where it does not answer, no more."""
        if self._left <= 0:
            return None
        began = time.perf_counter()
        with self._engine.store.time_limit(self._left):
            answer = call()
        self._left = 0 if answer is None else self._left - (time.perf_counter() - began)
        return answer


def _copy_of(response: Response) -> Response:
    """Return a copy for a predicate, which may read or change it; a streamed body is left out."""
    copied = copy(response)
    copied.headers = Headers(response.headers)
    if response.is_streamed:
        copied.response = []
    copied.direct_passthrough = False
    return copied


def _is_recordable(response: Response, most: int) -> bool:
    is_streamed = response.is_streamed and not isinstance(response.response, LOOKS_STREAMED)
    return not is_streamed and (response.content_length or 0) <= most
