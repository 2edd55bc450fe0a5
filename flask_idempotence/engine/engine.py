"""The engine: claims the operations that guards name. The same for every mode."""

from __future__ import annotations

import itertools
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from flask import Flask, Response, has_request_context

from ..config.runtime import Switches
from ..config.settings import CLOCK_SKEW, REPEATS
from ..errors import ConfigurationError
from ..request.proxies import current_context, current_request
from ..request.tokens import Token
from ..response.headers import RESPONSE_STATE
from ..response.records import UnreadableRecord
from ..response.refusals import Refusal
from ..signals import claimed, observed, rejected, replayed, token_spent
from ..stores import process
from ..stores.base import (
    OWNER_BYTES,
    Claimed,
    Running,
    Store,
    TokenOutcome,
    began_at,
)
from .debug_log import log_decision
from .guard import Claim, Services, ViewGuard
from .keeper import Keeper, PendingSettlement
from .settling import Settling
from .state import dispatched, state_of
from .store_calls import StoreCalls
from .values import NO_OPERATION, Found, Operation, Unguarded, Verdict

_logger = logging.getLogger("flask_idempotence")

SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 1.0  # seconds between two claims of a request that waits for a running one
_REST = 0.001  # seconds that are too short to wait for: sums of pauses are not exact

# Guarded requests between two searches for settings that were changed late.
LATE_SETTINGS_EVERY = 64

_MOST_BOUND = 10_000

_IN_MEMORY = (
    "Flask-Idempotence: claims are kept in the memory of this process: other workers do not see "
    "them, and a restart forgets them. Set IDEMPOTENCE_STORAGE_URI for production."
)


def new_owner() -> bytes:
    """Return the owner of a claim: the time, which commands show, and 80 random bits."""
    beginning = int(time.time() * 1000).to_bytes(6)
    return beginning + os.urandom(OWNER_BYTES - len(beginning))


class Admission(NamedTuple):
    """The result of a request at a guard; empty where the view runs without a claim of its own."""

    # Its view runs under it: its own, or that of an outer guard whose view runs once more.
    claim: Claim | None = None
    reply: Any = None  # the answer to a repeat, in place of the view


class Engine:
    """Claims the operations of one application, and answers for those that are claimed already."""

    # Class attributes: a test replaces them for all applications at once.
    clock: Callable[[], float] = staticmethod(process.monotonic)
    sleep: Callable[[float], None] = staticmethod(process.sleep)

    def __init__(self, services: Services, store: Store, switches: Switches) -> None:
        self.services = services
        self.config = services.config
        self.store = store
        self.switches = switches
        self.store_calls = StoreCalls(self.config, self.now)
        self.keeper = Keeper(store, self.store_calls, self.config, self.now)
        self.settling = Settling(services, self.keeper, self.now)
        self._requests = itertools.count()
        self._bound: dict[tuple[ViewGuard, str | None], ViewGuard] = {}
        self._old: set[str] = set()
        self._has_warned_of_memory = store.shared
        self._repeat_level = self.config.repeat_level

    def is_on(self, app: Flask, toggle: str) -> bool:
        """Whether a mode is switched on.

        Asked first at every guard: it notices a fork, too, and late changes of settings.
        """
        if process.current.id != os.getpid():  # the server ran no hook at the fork
            process.current.notice_fork()
        if next(self._requests) % LATE_SETTINGS_EVERY == 0:
            self.switches.report_late(app)
        config = app.config
        if config["IDEMPOTENCE_ENABLED"] is True and config[toggle] is True:
            return True
        return self.switches.is_on(app, toggle)

    def observes(self, app: Flask, guard: ViewGuard | None = None) -> bool:
        """Whether a guard only counts what it would have done; None for the application's own."""
        own = None if guard is None else guard.observe
        return self.switches.observes(app) if own is None else own

    def now(self) -> float:
        return self.clock()

    def bound(self, guard: ViewGuard, endpoint: str | None) -> ViewGuard:
        """Return the guard of a route with the settings filled in, at its first request."""
        bound = self._bound.get((guard, endpoint))
        if bound is None:
            if len(self._bound) >= _MOST_BOUND:  # guards that are made for each request
                self._bound.clear()
            bound = self._bound[guard, endpoint] = guard.bind(self.services, endpoint)
        return bound

    def enter(
        self, claim: Claim, ask: Callable[[], Operation | Unguarded], outer: Sequence[Claim] = ()
    ) -> Admission:
        """Claim the operation that `ask` returns; `outer` are claims of guards outside.

        Raises the Refusal of the guard, the operation or the store.
        """
        try:
            admission = self.enter_claimed(claim, ask(), outer)
        except Refusal as refusal:
            self.announce(refusal, claim)
            raise
        if admission.claim is claim:
            try:
                if claim.owner:
                    self.keeper.watch(claim)
                if claim.is_granted:
                    if claim.app.debug:
                        log_decision(claim, "claimed")
                    claim.emit(claimed, lease=claim.lease, waited=claim.waited)
            except BaseException:  # such as a time-out of gevent's, in a receiver
                claim.judge(Verdict.NOT_RUN)
                self.settling.settle(claim)
                raise
        elif admission.reply is not None:
            self._log(self._repeat_level, "replayed:", claim)
            if claim.app.debug:
                log_decision(claim, "replayed")
            claim.emit(replayed, waited=claim.waited)
        return admission

    def enter_claimed(
        self, claim: Claim, operation: Operation | Unguarded, outer: Sequence[Claim]
    ) -> Admission:
        if isinstance(operation, Unguarded):
            log_decision(claim, f"{operation.reason}: the view runs unguarded")
            return Admission(self._unclaimed(claim))
        within = claim.guard.within
        self.identify(claim, operation)
        if outer and (held := self._held(outer, claim)) is not None:
            log_decision(claim, "claimed already, by a guard further out")
            claim.guard.accept_outer(held)
            begun = held.transaction
            if within is None or (begun is not None and within.session() is begun.session):
                runs_again = not held.in_view and held.runner is None
                return Admission(held if runs_again else None)
            return Admission(self._unclaimed(claim))
        if within is not None:  # first, for it may be refused
            claim.transaction = self.store_calls.call(claim, "begin", partial(within, self.store))
        found = self.claim(claim)
        if found is None:
            log_decision(claim, "no answer from the store: the view runs unguarded")
            return Admission()
        if isinstance(found, Claim):
            if operation.token is not None:
                claim.emit(token_spent, purpose=operation.token.purpose)
            return Admission(claim if within is None else self._begin(claim))
        self._warn_if_old(claim, found)
        return Admission(reply=claim.guard.answer(claim, found))

    def identify(self, claim: Claim, operation: Operation) -> None:
        """Give a claim its operation, store key and fingerprint, or raise the refusal in it."""
        app, keyring = claim.app, self.services.keyring
        if not self._has_warned_of_memory:
            self._has_warned_of_memory = True
            if not app.debug and not app.testing:
                _logger.warning(_IN_MEMORY)
        claim.operation = operation
        claim.key = keyring.store_key(
            app,
            claim.guard.mode,
            claim.guard.scope or claim.endpoint,
            operation.name,
            below=operation.below,
        )
        if operation.refusal is not None:  # signals and log lines have the key by now
            raise operation.refusal
        if operation.content is not None:
            claim.fingerprint = keyring.digest(app, operation.content)

    def _held(self, outer: Sequence[Claim], entering: Claim) -> Claim | None:
        """Return the request's own claim of a key, from a guard further out.

        A claim whose view has ended is settled first where its view cannot run again under it: its
        writes are rolled back, it may begin only once, or the claim is lost.
        """
        for claim in outer:
            if claim.key != entering.key or not claim.is_granted or claim.settled:
                continue
            is_again = claim.has_raised or claim.guard is entering.guard
            begins_once = claim.transaction is not None or claim.operation.hold_after_crash
            if claim.in_view or not ((is_again and begins_once) or claim.lost):
                return claim
            if claim.transaction is not None and not (claim.has_raised or claim.lost):
                return None  # its writes are not rolled back: no transaction begins beside them
            claim.judge(Verdict.FAILED)
            self.settling.settle(claim)
        return None

    def claim(self, claim: Claim) -> Claim | Found | None:
        """Claim an operation at the store, and wait for a running one as long as it allows.

        Returns the claim where it is granted.
        """
        operation = claim.operation
        if operation.token is not None:
            return self._spend(claim, operation.token)
        key, lease, keep = claim.key, operation.lease, operation.hold_after_crash
        began = now = self.clock()
        pause, slept = SHORTEST_PAUSE, 0.0
        while True:
            owner = new_owner()
            found = self.store_calls.call(
                claim,
                "claim",
                partial(self.store.claim, key, owner, claim.fingerprint, lease, keep),
                on_unknown=partial(self._take_back, claim, owner),
            )
            if isinstance(found, Claimed):
                # A lease is counted from before the call: on the store it begins later, so it
                # never ends there before it ends here.
                return claim.grant(owner, now)
            if not (isinstance(found, Running) and found.matches):
                return found
            # By the sleeps as well: a stopped clock, as in tests, must not prolong the wait.
            left = operation.wait - max(self.clock() - began, slept)
            if left < _REST:
                return found
            # Jitter: of several claims at the same time, one is granted.
            nap = max(SHORTEST_PAUSE, pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
            # The last pause includes a rest that is too short for a pause of its own.
            nap = nap if left >= nap + SHORTEST_PAUSE else left
            self.sleep(nap)
            slept += nap
            now = self.clock()
            claim.waited = now - began
            pause = min(1.5 * pause, LONGEST_PAUSE)

    def _take_back(self, claim: Claim, owner: bytes) -> None:
        # The claim may have been granted although its answer was lost.
        operation = claim.operation
        until = self.now() + max(operation.lease, self.config.lease) + operation.hold_after_crash
        release = partial(self.store.release, claim.key, owner)
        self.keeper.retry(PendingSettlement(claim, "release", release, until))

    def _spend(self, claim: Claim, token: Token) -> Claim | TokenOutcome | None:
        key, subject = claim.key, self.services.keyring.subject(claim.app, token.bearer.text)
        outcome = self.store_calls.call(
            claim, "take_token", lambda: self.store.take_token(key, subject)
        )
        if outcome is TokenOutcome.TAKEN:
            return claim.grant()
        if outcome is None:  # this machine's clock decides where the store's cannot be asked
            self.services.tokens.check_age(token, CLOCK_SKEW)
        return outcome

    def _warn_if_old(self, claim: Claim, found: object) -> None:
        """Log a claim that refuses others for more than two leases, once a key and process."""
        if not isinstance(found, Running) or claim.key in self._old:
            return
        operation = claim.operation
        # A lock may wait for its interval, after a view that has outlasted it.
        leases = 2 * max(operation.lease, operation.renewal, self.config.lease)
        began = began_at(found.owner)
        if not began or (age := time.time() - began) <= claim.guard.interval + leases:
            return
        if len(self._old) >= _MOST_BOUND:
            self._old.clear()
        self._old.add(claim.key)
        _logger.warning(
            "A running request has held its claim for %.0f seconds, and others are refused: %s%s. "
            "If it is stuck, end its process: 'flask idempotence inspect --running' lists the "
            "claims, and 'flask idempotence release' frees one.",
            age,
            claim,
            claim.route,
        )

    def _unclaimed(self, claim: Claim) -> Claim | None:
        """Return the claim of a view that is not claimed, and has a transaction: without a key."""
        within = claim.guard.within
        if within is None:
            return None
        claim.operation = NO_OPERATION
        claim.transaction = self.store_calls.call(claim, "begin", partial(within, None))
        return self._begin(claim.grant())

    def _begin(self, claim: Claim) -> Claim:
        if claim.transaction is None:
            raise RuntimeError("A view within= a session never runs without its transaction.")
        try:
            self.store_calls.call(claim, "begin", claim.transaction.begin)
        except Exception:
            claim.judge(Verdict.FAILED)
            self.settling.settle(claim)
            raise
        return claim

    # Refusals and the log

    def announce(self, refusal: Refusal, claim: Claim) -> None:
        """Apply the settings to a refusal, log it, and send the signal."""
        refusal.apply(self.config)
        if isinstance(cause := refusal.__cause__, UnreadableRecord):
            _logger.error("A record cannot be read: it is %s: %s", cause, claim)
        level = self._repeat_level if refusal.slug in REPEATS else logging.INFO
        self._log(level, "rejected: reason=" + refusal.slug, claim)
        because = refusal.reason and f": {refusal.reason}"
        log_decision(claim, f"refused: {refusal.slug}{because}")
        claim.emit(rejected, error=refusal, waited=claim.waited)

    def report_observed(
        self, claim: Claim, reason: str, error: Exception | None = None, *, because: str = ""
    ) -> None:
        """Log what a guard that only observes would have done, and send the signal."""
        is_repeat = reason in REPEATS or reason == "replay"
        level = logging.INFO if error is None else logging.ERROR
        told = f"observed: reason={reason}{because and f' ({because})'}"
        self._log(self._repeat_level if is_repeat else level, told, claim)
        if error is not None:
            _logger.error("It would have raised: %s", claim, exc_info=error)
        log_decision(claim, f"observed: {reason}")
        claim.emit(observed, reason=reason)

    @staticmethod
    def _log(level: int, end: str, claim: Claim) -> None:
        if _logger.isEnabledFor(level):
            _logger.log(level, "Request %s %s%s", end, claim, claim.route)


def engine_of(app: Flask) -> Engine:
    state = app.extensions.get("idempotence")
    if state is None:
        raise ConfigurationError(
            f"The application {app.name!r} has a guarded view or asks for a token, but the "
            "extension is not registered on it: call Idempotence(app), or "
            "idempotence.init_app(app) in the application factory."
        )
    engine: Engine = state.engine
    return engine


# The ends of a request, also without a guard. Flask searches each for a coroutine every time,
# which takes longer for a method than for a function.


def finish_request(app: Flask, response: Response, **_: object) -> None:
    """Settle by the response that is sent; receives the signal `request_finished`."""
    context = current_context()
    state = state_of(context.request)
    is_guarded = state.claims or state.replayed is not None
    is_streamed = type(response.response) is not list
    if is_guarded or is_streamed or RESPONSE_STATE in vars(context.request):
        engine_of(app).settling.send(context, state, response)
    if state.observed is not None:
        state.observed.finish(response)


def receive_exception(_app: Flask, **_: object) -> None:
    """Note an exception without a handler; receives the signal `got_request_exception`.

    An application may send that signal, too, at any time, and so may a view.
    """
    if not has_request_context():
        return
    request = current_request()
    state = state_of(request)
    for claim in state.claims:
        if not claim.settled and not claim.in_view:
            claim.leave(raised=True)
    if state.replayed is not None:
        _logger.error(
            "Flask-Idempotence: an exception followed a replay of %r. A decorator outside the "
            "guard must pass on the Response of a replay; or put it inside the guard.",
            request.endpoint,
        )


def tear_down_request(error: BaseException | None) -> None:
    context = current_context()
    state = state_of(context.request)
    for claim in reversed(state.claims):
        # A copy of the context, in a thread that the view has started, ends earlier.
        if not (claim.settled or claim.streaming or claim.context != id(context)):
            engine_of(context.app).settling.tear_down(claim, error)
    if state.number and state.context != id(context):
        return  # a copy of the context, which ends earlier
    if dispatched.get() == state.number:
        dispatched.set(state.before)
    if state.observed is not None:
        state.observed.finish(None)
