"""Key mode: the client names its operation, and every repeat gets the first response."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..attempts import Attempt, Hold
from ..config import REJECT, Config
from ..engine import Engine
from ..errors import (
    ConfigurationError,
    KeyInProgress,
    KeyMissing,
    KeyRepeated,
    KeyReused,
    OutcomeUnknown,
    ResponseNotStored,
    TokenExpired,
)
from ..fingerprint import canonical_request, canonical_texts, selection_of
from ..keys import key_in_header, key_of_value
from ..modes import Replay, Settlement, ViewGuard
from ..policy import checked_policy
from ..records import Asked, RecordOfAnotherRequest, UnreadableRecord
from ..responses import REPLAYED_HEADER, is_transient
from ..stores.base import ClaimOutcome, Crashed, Done, Running
from ..tokens import CLOCK_SKEW
from ..within import Open, begin, open_transaction

if TYPE_CHECKING:
    from flask import Request, Response

    from ..transactions import Transaction

T = TypeVar("T")

_logger = logging.getLogger("flask_idempotence")

SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""Seconds between two looks at a request that is still running."""


@dataclass(frozen=True, slots=True)
class KeyRules:
    """What a route wants in its own way; None for what the settings say.

    Attributes:
        required: whether a request without a key is refused.
        ttl: seconds for which a response is remembered.
        key: the name of a header, or a function that returns the key.
        ignore: names of arguments that do not count, besides the setting's.
        on_repeat: `"replay"` or `"reject"`.
        guarantee: `"at-least-once"` or `"at-most-once"`.
        remember: `"final"`, `"success"`, or a function that takes the response.
        wait: seconds that a repeat waits for the first one.
        on_store_error: `"reject"` or `"allow"`.
        within: opens the transactions in which the view writes.
        methods: methods that are guarded; None for all but the safe ones.
    """

    required: bool | None = None
    ttl: float | None = None
    key: str | Callable[[], Any] | None = None
    ignore: frozenset[str] = frozenset()
    on_repeat: str | None = None
    guarantee: str | None = None
    remember: str | Callable[[Response], bool] | None = None
    wait: float | None = None
    on_store_error: str | None = None
    within: Open | None = None
    methods: frozenset[str] | None = None


class KeyGuard(ViewGuard):
    """What key mode does in its own way."""

    mode = "key"
    toggle = "IDEMPOTENCE_KEY_ENABLED"

    def __init__(self, rules: KeyRules) -> None:
        self.rules = rules
        # Who writes within a transaction that nobody commits would lose what is written.
        own = REJECT if rules.within is not None else rules.on_store_error
        self.on_store_error = checked_policy("idempotent", own)

    def covers(self, method: str) -> bool:
        """Whether requests of this method are guarded at all."""
        if self.rules.methods is not None:
            return method in self.rules.methods
        return super().covers(method)

    def enter(self, engine: Engine, attempt: Attempt, request: Request) -> Hold | Replay | None:
        """Claim the key that the client sent, or show what came of it before."""
        sent = self._sent(engine, attempt, request)
        if sent is None:
            if _either(self.rules.required, engine.config.key_required):
                raise KeyMissing
            return self.pass_by(engine, attempt)
        app, identities = attempt.app, engine.identities
        # A token is nobody else's to know: it stays one key when a guest's address changes.
        asker = identities.bearer_of if self._takes_token(engine.config) else identities.of_key
        key = name_store_key(engine, attempt, asker(app, request), request.method, sent)
        if (held := engine.held(request, key)) is not None:
            return None if self._is_within(held) else self.pass_by(engine, attempt)
        selection = selection_of(None, self.rules.ignore, engine.config.ignored_args, files=True)
        # One endpoint may have several rules, and another path is another request.
        rule = request.url_rule.rule if request.url_rule is not None else ""
        asked = canonical_request(request, selection, "key", rule)
        fingerprint = engine.keyring.digest(app, asked)
        transaction = self._transaction(engine, attempt, claims=True)
        outcome = self._claim(engine, attempt, key, fingerprint)
        if outcome is None:
            return None
        if isinstance(outcome, Hold):
            return outcome if transaction is None else begin(outcome, transaction)
        return self._answer(engine, attempt, Asked(key, fingerprint), outcome)

    def pass_by(self, engine: Engine, attempt: Attempt) -> Hold | None:
        """Return a hold without a claim where the view leaves its commit to the guard."""
        transaction = self._transaction(engine, attempt, claims=False)
        if transaction is None:
            return None
        return begin(Hold(engine, self, attempt, key=""), transaction)

    def _is_within(self, held: Hold) -> bool:
        within, transaction = self.rules.within, held.transaction
        if within is None or transaction is None:
            return False
        return within.session() is transaction.session

    def accept(self, view: Callable[..., Any]) -> None:
        """Refuse an async view whose writes would go into another thread's session."""
        within = self.rules.within
        if within is not None and within.of_thread and inspect.iscoroutinefunction(view):
            raise ConfigurationError(
                "idempotent(within=...): an async view runs in a thread of its own, where this "
                "scoped_session is another session, which nobody commits. Give it a scopefunc "
                "that tells requests apart, as Flask-SQLAlchemy does, or pass a function that "
                "returns the view's session."
            )

    def _transaction(
        self, engine: Engine, attempt: Attempt, *, claims: bool
    ) -> Transaction | None:
        if self.rules.within is None:
            return None
        return open_transaction(engine, attempt, self.rules.within, claims=claims)

    def settle(self, engine: Engine, hold: Hold, *, failed: bool) -> Settlement:
        """Remember the response, or release what may be tried again."""
        if failed and (not self._once_at_most(engine) or hold.failed_by_hand):
            return engine.release(hold)
        ttl = self._ttl(engine.config)
        record = hold.detail or engine.records.remember_status(hold, 500, ttl)
        return engine.complete(hold, record, ttl)

    def has_failed(self, engine: Engine, hold: Hold, response: Response) -> bool:
        """Whether the response is none to be remembered; it is noted in any case."""
        hold.detail = engine.records.remember(hold, response, self._ttl(engine.config))
        if self._once_at_most(engine):
            return False
        remember = self.rules.remember
        if callable(remember):
            return not remember(response)
        if remember == "success":
            return engine.hooks.result_failed(response)
        return is_transient(response)

    def check(self, endpoint: str, config: Config) -> None:
        """Look at the route's rules once the settings are known."""
        if self._guarantee(config) == "at-most-once" and self.rules.remember is not None:
            raise ConfigurationError(
                f"The view {endpoint!r} is guarded at-most-once, which remembers every response: "
                "leave idempotent(remember=...) out, or choose guarantee='at-least-once'."
            )
        if self._takes_token(config) and self._ttl(config) <= CLOCK_SKEW:
            raise ConfigurationError(
                f"The view {endpoint!r} takes a token for a key. Its ttl must be more than the "
                f"{CLOCK_SKEW} seconds by which clocks may differ."
            )

    def _claim(
        self, engine: Engine, attempt: Attempt, key: str, fingerprint: bytes
    ) -> Hold | ClaimOutcome | None:
        lease = engine.config.lease
        keep = self._ttl(engine.config) if self._once_at_most(engine) else 0.0
        wait_until = engine.now() + _either(self.rules.wait, engine.config.key_wait)
        pause = SHORTEST_PAUSE
        while True:
            outcome = engine.claim(self, attempt, key, fingerprint, lease, keep)
            if not (isinstance(outcome, Running) and outcome.matches):
                return outcome
            left = wait_until - engine.now()
            if left <= 0:
                return outcome
            # The last pause takes in what would be too short for one of its own.
            engine.sleep(pause if left >= pause + SHORTEST_PAUSE else left)
            pause = min(1.5 * pause, LONGEST_PAUSE)

    def _answer(
        self, engine: Engine, attempt: Attempt, asked: Asked, found: ClaimOutcome
    ) -> Replay:
        if not getattr(found, "matches", True):
            raise KeyReused
        if isinstance(found, Crashed):
            raise OutcomeUnknown
        if not isinstance(found, Done):
            raise KeyInProgress
        if _either(self.rules.on_repeat, engine.config.key_on_repeat) == "reject":
            raise KeyRepeated
        # With a content type, so that none is made up: that takes longer than all the rest.
        response = attempt.app.response_class(content_type="")
        try:
            is_whole = engine.records.replay(asked, found.record, response)
        except UnreadableRecord as error:
            _logger.error("A record cannot be read: it is %s: %s", error, attempt)
            if isinstance(error, RecordOfAnotherRequest):
                raise KeyReused from None
            is_whole = False
        if not is_whole:
            raise ResponseNotStored
        response.headers[REPLAYED_HEADER] = "true"
        return Replay(response)

    def _sent(self, engine: Engine, attempt: Attempt, request: Request) -> str | None:
        source = self.rules.key
        if callable(source):
            return key_of_value(source())
        if self._takes_token(engine.config):
            return self._token(engine, attempt, request)
        return key_in_header(request, source or engine.config.key_header)

    def _takes_token(self, config: Config) -> bool:
        header = self.rules.key
        return isinstance(header, str) and header.lower() == config.token_header.lower()

    def _token(self, engine: Engine, attempt: Attempt, request: Request) -> str | None:
        token = engine.tokens.sent_with(request)
        if token is None:
            return None
        known = engine.tokens.verify(attempt, token)
        # Good for as long as what came of it is certain to be remembered, and no longer: then a
        # late repeat is refused, and never runs again.
        if engine.tokens.clock() - known.issued > self._ttl(engine.config) - CLOCK_SKEW:
            raise TokenExpired
        return known.key

    def _ttl(self, config: Config) -> float:
        return _either(self.rules.ttl, config.key_ttl)

    def _guarantee(self, config: Config) -> str:
        if self.rules.within is not None:
            # What died has left nothing, so that it may run again: exactly once.
            return "at-least-once"
        return _either(self.rules.guarantee, config.key_guarantee)

    def _once_at_most(self, engine: Engine) -> bool:
        return self._guarantee(engine.config) == "at-most-once"


def name_store_key(engine: Engine, attempt: Attempt, identity: str, method: str, sent: str) -> str:
    """Name the store key of an idempotency key that a client sends to an endpoint."""
    named = canonical_texts("key", identity, method, attempt.endpoint or "", sent)
    return engine.name_key(attempt, engine.keyring.digest(attempt.app, named))


def _either(own: T | None, general: T) -> T:
    return general if own is None else own
