"""The engine: identify, claim, run the view, settle. The same for every mode."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from flask import after_this_request, has_request_context

from ..errors import ConfigurationError
from ..request.hashing import KEYSPACE
from ..request.near_misses import NearMisses
from ..response.records import Records
from ..response.refusals import LeaseLost, Refusal
from ..signals import claimed, completed, rejected, released, replayed
from ..stores.base import OWNER_BYTES, Claimed, ClaimOutcome, Completion, Outcome, Renewal
from .claim import Attempt, Hold, add_hold, holds_of, note_replay
from .debug_log import note
from .guard import Guard, Replay, Settlement, ViewGuard
from .keeper import Keeper
from .retry_queue import Unsettled
from .settling import Settling
from .store_calls import FailurePolicy

if TYPE_CHECKING:
    from flask import Flask, Request

    from ..config.callbacks import Callbacks
    from ..config.settings import Config
    from ..config.switches import Switches
    from ..request.hashing import Keyring
    from ..request.identity import Identities
    from ..stores.base import Store
    from .tokens import Tokens

_logger = logging.getLogger("flask_idempotence")

T = TypeVar("T")


class Engine:
    """Carries one application's guarded requests through their steps.

    Attributes:
        config: the settings.
        store: where claims and tokens are kept.
        clock: returns seconds that never go back; a test may replace it.
        sleep: lets seconds pass; a test may replace it, too.
        hooks: the application's own functions.
        identities: says who asks.
        keyring: makes keyed hashes.
        policy: carries out store operations.
        switches: tells which modes are on.
        keeper: renews leases while views run.
        settling: ends what is held.
        records: makes records of responses, and back.
        near_misses: warns of clients that use other names.
        tokens: issues and spends tokens.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        hooks: Callbacks,
        identities: Identities,
        keyring: Keyring,
        switches: Switches,
    ) -> None:
        self.config = config
        self.store = store
        self.identities = identities
        self.keyring = keyring
        self.hooks = hooks
        self.clock: Callable[[], float] = time.monotonic
        self.sleep: Callable[[float], None] = time.sleep
        self.switches = switches
        self._told_of_memory = store.shared
        self.policy = FailurePolicy(config, self.now)
        self.records = Records(config)
        self.near_misses = NearMisses(config)
        self.settling = Settling(self)
        self.keeper = Keeper(store, self.policy, config, self.now, self.settling.lost)
        self.tokens: Tokens

    def now(self) -> float:
        """Return the clock's seconds."""
        return self.clock()

    def run(self, app: Flask, request: Request, guard: ViewGuard, call: Callable[[], Any]) -> Any:
        """Run a view behind its guard.

        Args:
            app: the application.
            request: the request.
            guard: what guards the view.
            call: runs the view.

        Returns:
            What the view returned, untouched; what it raised is passed on. Or the response that
            is remembered of it.

        Raises:
            Refusal: the request was turned away, and the view did not run.
        """
        if not guard.covers(request.method):
            return call()
        is_on = self.switches.is_on(app, guard.toggle)
        attempt = Attempt(app, guard.mode, request.endpoint, guard.on_store_error)
        if is_on:
            hold = self.admit(attempt, partial(guard.enter, self, attempt, request))
        else:
            note(attempt, "switched off by IDEMPOTENCE_ENABLED or %s", guard.toggle)
            hold = self.decide(attempt, partial(guard.pass_by, self, attempt))
        if hold is None:
            return call()
        if isinstance(hold, Replay):
            note_replay(request)
            after_this_request(partial(self.settling.keep_replay, hold.response))
            return hold.response
        add_hold(request, hold)
        try:
            value = call()
        except Exception:
            self.settling.view_ended(hold, raised=True)
            raise
        except BaseException:
            self.settling.abandon(hold)
            raise
        else:
            self.settling.view_ended(hold, raised=False)
            return value
        finally:
            hold.in_view = False
            # Runs after the view's own `after_this_request` callbacks.
            after_this_request(partial(self.settling.record, hold))

    def admit(self, attempt: Attempt, enter: Callable[[], Hold | T | None]) -> Hold | T | None:
        """Let a guard decide about an attempt, and tell what it has decided.

        Args:
            attempt: the attempt.
            enter: identifies and claims.

        Returns:
            What `enter` returned: a hold, whose lease is kept from now on; None for an attempt
            that runs without one; anything else is what came of it before.

        Raises:
            Refusal: it was turned away.
        """
        if not self._told_of_memory:
            self._tell_of_memory(attempt.app)
        found = self.decide(attempt, enter)
        if isinstance(found, Hold):
            if found.owner:
                self.keeper.watch(found)
            if found.key:
                note(attempt, "claimed")
                attempt.emit(claimed, lease=found.lease)
        elif found is not None:
            _logger.info("Request replayed: %s", attempt)
            note(attempt, "replayed")
            attempt.emit(replayed)
        return found

    def decide(self, attempt: Attempt, enter: Callable[[], T]) -> T:
        """Return what a guard decides about an attempt; a refusal is told and raised."""
        try:
            return enter()
        except Refusal as refusal:
            self.announce(refusal, attempt)
            raise

    def _tell_of_memory(self, app: Flask) -> None:
        self._told_of_memory = True
        if not app.debug and not app.testing:
            _logger.warning(
                "Flask-Idempotence: claims are kept in the memory of this process: other workers "
                "do not see them, and a restart forgets them. Set IDEMPOTENCE_STORAGE_URI for "
                "production."
            )

    def announce(self, refusal: Refusal, attempt: Attempt) -> None:
        """Finish a refusal by the settings, log it, and send the signal."""
        self.finish(refusal)
        _logger.info("Request rejected: reason=%s %s", refusal.slug, attempt)
        note(attempt, "refused: %s%s", refusal.slug, refusal.reason and f": {refusal.reason}")
        attempt.emit(rejected, error=refusal)

    def finish(self, refusal: Refusal) -> None:
        """Give a refusal what the settings say of answers."""
        refusal.problem_base = self.config.problem_base
        if refusal.is_duplicate:
            refusal.code = self.config.duplicate_status
        if has_request_context():
            after_this_request(refusal.keep_headers)

    def name_key(self, attempt: Attempt, digest: bytes, *, part: str | None = None) -> str:
        """Name the store key of an attempt; `part` stands in for the endpoint."""
        name = attempt.endpoint if part is None else part
        attempt.key = f"{self.config.prefix}:{KEYSPACE}:{attempt.mode}:{name}:{digest.hex()}"
        return attempt.key

    def held(self, request: Request, key: str) -> Hold | None:
        """Return this request's own hold of a key, from a guard further out.

        A hold whose view has raised cannot be run under again, where its writes are rolled back
        or its view may begin only once: it is settled first.
        """
        for hold in holds_of(request):
            if hold.key != key or hold.settled:
                continue
            if hold.raised and not hold.in_view and (hold.transaction is not None or hold.keep):
                self.settling.settle(hold, failed=True)
            else:
                return hold
        return None

    def claim(
        self,
        guard: Guard,
        attempt: Attempt,
        key: str,
        fingerprint: bytes,
        lease: float,
        keep: float,
    ) -> Hold | ClaimOutcome | None:
        """Claim a key for an attempt.

        Returns:
            A hold where the claim is granted; else what is there; None where the store does not
            answer and the view shall run unguarded.

        Raises:
            StoreUnavailable: the store does not answer, and the policy is to refuse.
        """
        owner = os.urandom(OWNER_BYTES)
        # A lease is counted from before it is asked for: on the store it begins later, so it
        # never ends there before it ends here.
        asked_at = self.now()
        outcome = self.policy.ask(
            attempt,
            "claim",
            lambda: self.store.claim(key, owner, fingerprint, lease, keep),
            unsure=lambda: self._take_back(
                attempt, key, owner, max(lease, self.config.lease) + keep
            ),
        )
        if not isinstance(outcome, Claimed):
            return outcome
        hold = Hold(self, guard, attempt, key)
        hold.owner, hold.fingerprint, hold.keep = owner, fingerprint, keep
        hold.granted_at = asked_at
        hold.begin_lease(lease, asked_at)
        return hold

    def _take_back(self, attempt: Attempt, key: str, owner: bytes, within: float) -> None:
        # The claim may have been granted although its answer was lost.
        self.keeper.finish(
            Unsettled(
                attempt,
                "release",
                lambda: self.store.release(key, owner),
                self.now() + within,
            )
        )

    def release(self, hold: Hold) -> Settlement:
        """Give a claim up."""
        return Settlement(released, "release", lambda: self.store.release(hold.key, hold.owner))

    def complete(self, hold: Hold, record: bytes, keep: float) -> Settlement:
        """Leave a record in a claim's place, for so many seconds."""
        completion = Completion(hold.key, hold.owner, hold.fingerprint, record, keep)
        return Settlement(
            completed,
            "complete",
            lambda: self.store.complete(*completion),
            keeps_claim=True,
            completion=completion,
        )

    def ensure_held(self, hold: Hold) -> None:
        """Renew a hold's lease now.

        Raises:
            LeaseLost: it is no longer ours.
            StoreUnavailable: the store does not answer, and the policy is to refuse.
        """
        try:
            self._renew(hold)
        except Refusal as refusal:
            self.finish(refusal)
            raise

    def _renew(self, hold: Hold) -> None:
        if hold.settled:  # after the response: nothing is held any more
            raise LeaseLost
        now = self.now()
        renewal = Renewal(hold.key, hold.owner, self.config.lease)
        hold.renewed = True
        outcomes = self.policy.ask(hold.attempt, "renew", lambda: self.store.renew([renewal]))
        if outcomes is None:
            return
        if outcomes[0] is Outcome.STALE:
            self.settling.lost(hold, "renew")
            raise LeaseLost
        hold.begin_lease(self.config.lease, now)


def engine_of(app: Flask) -> Engine:
    """Return an application's engine.

    Raises:
        ConfigurationError: the extension is not registered on it.
    """
    state = app.extensions.get("idempotence")
    if state is None:
        raise ConfigurationError(
            f"The application {app.name!r} has a guarded view or asks for a token, but the "
            "extension is not registered on it: call Idempotence(app), or "
            "idempotence.init_app(app) in the application factory."
        )
    engine: Engine = state.engine
    return engine
