"""The engine: identify, claim, run the view, settle. The same for every mode."""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from flask import after_this_request

from .attempts import Attempt, Hold, add_hold, holds_of
from .errors import ConfigurationError, LeaseLost, Refusal
from .keeper import Keeper, Unsettled
from .keyring import printable
from .policy import FailurePolicy
from .signals import claimed, completed, lease_lost, rejected, released
from .stores.base import OWNER_BYTES, Claimed, ClaimOutcome, Outcome, Renewal
from .streams import settle_when_closed

if TYPE_CHECKING:
    from blinker import NamedSignal
    from flask import Flask, Request, Response

    from .config import Config
    from .hooks import Hooks
    from .identity import Identities
    from .keyring import Keyring
    from .stores.base import Store
    from .switches import Switches
    from .tokens import Tokens

_logger = logging.getLogger("flask_idempotence")

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # RFC 9110, section 9.2.1


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a hold ends.

    Attributes:
        signal: what is announced once it has ended so.
        operation: the name of what the store is told.
        call: tells it; None where there is nothing to tell.
        repeatable: whether the keeper may go on trying.
    """

    signal: NamedSignal
    operation: str = "settle"
    call: Callable[[], Outcome] | None = None
    repeatable: bool = True


KEPT = Settlement(completed)
"""Nothing to tell the store: what it holds ends by itself at the right time."""


class Guard(ABC):
    """What one mode does in its own way; the engine does the rest."""

    mode: ClassVar[str]
    toggle: ClassVar[str]
    """The setting that switches the mode off."""

    methods: Collection[str] = frozenset()
    """Methods that are guarded besides the unsafe ones."""

    @abstractmethod
    def enter(self, engine: Engine, attempt: Attempt, request: Request) -> Hold | None:
        """Identify the request and claim.

        Returns:
            What is now held; None where the view runs without.

        Raises:
            Refusal: the request is turned away.
        """

    @abstractmethod
    def settle(self, engine: Engine, hold: Hold, *, failed: bool) -> Settlement:
        """Say how a hold ends."""

    def has_failed(self, engine: Engine, response: Response) -> bool:
        """Whether a response is a failed result."""
        return engine.hooks.result_failed(response)


class Engine:
    """Carries one application's guarded requests through their steps.

    Attributes:
        config: the settings.
        store: where claims and tokens are kept.
        clock: returns seconds that never go back; a test may replace it.
        hooks: the application's own functions.
        identities: says who asks.
        keyring: makes keyed hashes.
        policy: carries out store operations.
        tokens: issues and spends tokens.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        hooks: Hooks,
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
        self._switches = switches
        self._told_of_memory = store.shared
        self.policy = FailurePolicy(config)
        self.keeper = Keeper(store, self.policy, config, self.now)
        self.tokens: Tokens

    def now(self) -> float:
        """Return the clock's seconds."""
        return self.clock()

    def run(self, app: Flask, request: Request, guard: Guard, call: Callable[[], Any]) -> Any:
        """Run a view behind its guard.

        Args:
            app: the application.
            request: the request.
            guard: what guards the view.
            call: runs the view.

        Returns:
            What the view returned, untouched; what it raised is passed on.

        Raises:
            Refusal: the request was turned away, and the view did not run.
        """
        if request.method in SAFE_METHODS and request.method not in guard.methods:
            return call()
        if not self._switches.is_on(app, guard.toggle):
            return call()
        if not self._told_of_memory:
            self._tell_of_memory(app)
        hold = self._enter(app, request, guard)
        if hold is None:
            return call()
        try:
            return call()
        except Exception:
            hold.raised = True
            raise
        except BaseException:
            self.abandon(hold)
            raise

    def _enter(self, app: Flask, request: Request, guard: Guard) -> Hold | None:
        attempt = Attempt(app, guard.mode, request.endpoint)
        try:
            hold = guard.enter(self, attempt, request)
        except Refusal as refusal:
            self.announce(refusal, attempt)
            raise
        if hold is None:
            return None
        add_hold(request, hold)
        after_this_request(lambda response: self._answer(hold, response))
        if hold.owner:
            self.keeper.watch(hold)
        attempt.emit(claimed, lease=hold.lease)
        return hold

    def _tell_of_memory(self, app: Flask) -> None:
        self._told_of_memory = True
        if not app.debug and not app.testing:
            _logger.warning(
                "Claims are kept in the memory of this process: other workers do not see them, "
                "and a restart forgets them. Set IDEMPOTENCE_STORAGE_URI for production."
            )

    def announce(self, refusal: Refusal, attempt: Attempt) -> None:
        """Finish a refusal by the settings, log it, and send the signal."""
        refusal.problem_base = self.config.problem_base
        if refusal.is_duplicate:
            refusal.code = self.config.duplicate_status
        _logger.info("Request rejected: reason=%s %s", refusal.slug, attempt)
        attempt.emit(rejected, error=refusal)

    def name_key(self, attempt: Attempt, digest: bytes, *, part: str | None = None) -> str:
        """Name the store key of an attempt; `part` stands in for the endpoint."""
        name = attempt.endpoint if part is None else part
        attempt.key = f"{self.config.prefix}:1:{attempt.mode}:{name}:{printable(digest)}"
        return attempt.key

    def is_held(self, request: Request, key: str) -> bool:
        """Whether this very request holds the key already, in a guard further out."""
        return any(hold.key == key and not hold.settled for hold in holds_of(request))

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
        hold = Hold(self, guard, attempt, key)
        hold.owner = os.urandom(OWNER_BYTES)
        # A lease is counted from before it is asked for: on the store it begins later, so it
        # never ends there before it ends here.
        hold.granted_at = self.now()
        hold.begin_lease(lease, hold.granted_at)
        outcome: ClaimOutcome | None = None
        try:
            outcome = self.policy.ask(
                attempt,
                "claim",
                lambda: self.store.claim(key, hold.owner, fingerprint, lease, keep),
            )
        finally:
            if outcome is None:  # it may have been granted all the same
                self._take_back(hold, keep)
        return hold if isinstance(outcome, Claimed) else outcome

    def _take_back(self, hold: Hold, keep: float) -> None:
        self.keeper.finish(
            Unsettled(
                hold.attempt,
                "release",
                lambda: self.store.release(hold.key, hold.owner),
                self.now() + max(hold.lease, self.config.lease) + keep,
            )
        )

    def release(self, hold: Hold) -> Settlement:
        """Give a claim up."""
        return Settlement(released, "release", lambda: self.store.release(hold.key, hold.owner))

    def end_at(self, hold: Hold, moment: float) -> Settlement:
        """Let a claim go on until a moment on the engine's clock, and count as completed."""

        def end() -> Outcome:
            left = moment - self.now()
            if left <= 0:
                return self.store.release(hold.key, hold.owner)
            return self.store.renew([Renewal(hold.key, hold.owner, left)])[0]

        return Settlement(completed, "renew", end)

    def ensure_held(self, hold: Hold) -> None:
        """Renew a hold's lease now; raises `LeaseLost` where it is no longer ours."""
        now = self.now()
        renewal = Renewal(hold.key, hold.owner, self.config.lease)
        outcomes = self.policy.ask(hold.attempt, "renew", lambda: self.store.renew([renewal]))
        if outcomes is None:
            return
        if outcomes[0] is Outcome.OK:
            hold.begin_lease(self.config.lease, now)
            hold.renewals += 1
            return
        self._lost(hold, "renew")
        raise LeaseLost

    def _answer(self, hold: Hold, response: Response) -> Response:
        if hold.settled:
            return response
        failed = self._has_failed(hold, response)
        if response.is_streamed:
            hold.streaming = True
            settle_when_closed(
                response,
                settle=lambda broken: self._settle(hold, failed=failed or broken),
                abandon=lambda: self.abandon(hold),
            )
        else:
            self._settle(hold, failed=failed)
        return response

    def _has_failed(self, hold: Hold, response: Response) -> bool:
        try:
            return hold.guard.has_failed(self, response)
        except Exception:
            # The side effect may have happened: a repeat is the greater evil.
            _logger.exception("Could not tell whether the result failed: %s", hold.attempt)
            return False

    def tear_down(self, request: Request, error: BaseException | None) -> None:
        """Settle what no response has settled."""
        for hold in reversed(holds_of(request)):
            if hold.settled or hold.streaming:
                continue
            if error is not None and not isinstance(error, Exception):
                self.abandon(hold)
            else:
                self._settle(hold, failed=hold.raised or error is not None)

    def abandon(self, hold: Hold) -> None:
        """Leave a claim to its lease: the view was killed, and what it did is unknown."""
        if hold.begin_settlement():
            self.keeper.unwatch(hold, within=0)
            _logger.warning("A view was killed; its claim ends with its lease: %s", hold.attempt)

    def _settle(self, hold: Hold, *, failed: bool) -> None:
        if not hold.begin_settlement():
            return
        quiet = self.keeper.unwatch(hold)
        failed = failed if hold.failed is None else hold.failed
        settlement = hold.guard.settle(self, hold, failed=failed)
        if settlement.call is None:
            hold.attempt.emit(settlement.signal)
            return
        outcome = (
            self.policy.tell(hold.attempt, settlement.operation, settlement.call)
            if quiet
            else None
        )
        if outcome is None:
            self._finish(hold, settlement)
        else:
            self._settled(hold, settlement, outcome)

    def _finish(self, hold: Hold, settlement: Settlement) -> None:
        if settlement.repeatable and settlement.call is not None:
            self.keeper.finish(
                Unsettled(
                    hold.attempt,
                    settlement.operation,
                    settlement.call,
                    hold.lease_end,
                    lambda outcome: self._settled(hold, settlement, outcome),
                )
            )

    def _settled(self, hold: Hold, settlement: Settlement, outcome: Outcome) -> None:
        if outcome is Outcome.OK:
            hold.attempt.emit(settlement.signal)
        else:
            self._lost(hold, "settle")

    def _lost(self, hold: Hold, during: str) -> None:
        if not hold.lost:
            hold.lost = True
            _logger.warning("A lease was lost: %s", hold.attempt)
            hold.attempt.emit(lease_lost, during=during)


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
