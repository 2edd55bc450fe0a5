"""Key mode: the client names its operation, and every repeat gets the first response."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..config.settings import (
    ALLOW,
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    CLOCK_SKEW,
    REJECT,
    SUCCESS,
    Config,
)
from ..engine.claim import Attempt, Hold
from ..engine.debug_log import note, note_identity
from ..engine.engine import Engine
from ..engine.guard import Replay, Settlement, ViewGuard
from ..engine.store_calls import checked_policy
from ..engine.transactions import begin, open_transaction
from ..errors import ConfigurationError
from ..exactly_once.within import Open
from ..request.fingerprint import canonical_request, canonical_texts, rule_of, selection_of
from ..request.key_header import is_unguessable, key_in_header, key_of_value
from ..response.outcome import REPLAYED_HEADER, is_transient
from ..response.records import RecordContext, RecordOfAnotherRequest, UnreadableRecord
from ..response.refusals import (
    KeyInProgress,
    KeyMissing,
    KeyRepeated,
    KeyReused,
    OutcomeUnknown,
    ResponseNotStored,
    TokenExpired,
)
from ..stores.base import ClaimOutcome, Crashed, Done, Running

if TYPE_CHECKING:
    from flask import Request, Response

    from ..exactly_once.transaction import Transaction

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
            self._look_nearby(engine, attempt, request)
            if _either(self.rules.required, engine.config.key_required):
                raise KeyMissing(self._where(engine.config))
            note(attempt, "no key: the view runs unguarded")
            return self.pass_by(engine, attempt)
        identity = self._identity(engine, attempt, request, sent)
        key = name_store_key(engine, attempt, identity, request.method, sent)
        if (held := engine.held(request, key)) is not None:
            return None if self._is_within(held) else self.pass_by(engine, attempt)
        selection = selection_of(None, self.rules.ignore, engine.config.ignored_args, files=True)
        asked = canonical_request(request, selection, "key", rule_of(request))
        fingerprint = engine.keyring.digest(attempt.app, asked)
        transaction = self._transaction(engine, attempt, claims=True)
        outcome = self._claim(engine, attempt, key, fingerprint)
        if outcome is None:
            return None
        if isinstance(outcome, Hold):
            return outcome if transaction is None else begin(outcome, transaction)
        return self._answer(engine, attempt, RecordContext(key, fingerprint), outcome)

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

    def has_failed(self, engine: Engine, response: Response) -> bool:
        """Whether the response is not to be remembered."""
        if self._once_at_most(engine):
            return False
        remember = _either(self.rules.remember, engine.config.key_remember)
        if callable(remember):
            return not remember(response)
        if remember == SUCCESS:
            return engine.hooks.has_failed(response)
        own = engine.hooks.result_failed
        return is_transient(response) or (own is not None and own(response))

    def has_failed_since(self, engine: Engine, response: Response) -> bool:
        """Whether a response that was changed after the view is not to be remembered."""
        if self._once_at_most(engine):
            return False
        if _either(self.rules.remember, engine.config.key_remember) == SUCCESS:
            return engine.hooks.has_failed_since(response)
        return is_transient(response)

    def record(self, engine: Engine, hold: Hold, response: Response) -> None:
        """Take the record of a response."""
        hold.detail = engine.records.remember(hold, response, self._ttl(engine.config))

    def check(self, endpoint: str, config: Config) -> None:
        """Look at the route's rules once the settings are known."""
        is_unguarded_in_outages = (self.on_store_error or config.on_store_error) == ALLOW
        if self._guarantee(config) == AT_MOST_ONCE and is_unguarded_in_outages:
            raise ConfigurationError(
                f"The view {endpoint!r} is guarded at-most-once, which cannot be kept with "
                "on_store_error='allow' (route or setting): the view would run unguarded. Give "
                "the route on_store_error='reject', or choose guarantee='at-least-once'."
            )
        if self._guarantee(config) == AT_MOST_ONCE and self.rules.remember is not None:
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
        self, engine: Engine, attempt: Attempt, asked: RecordContext, found: ClaimOutcome
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

    def _look_nearby(self, engine: Engine, attempt: Attempt, request: Request) -> None:
        if self._takes_token(engine.config):
            engine.near_misses.look_for_token(attempt.endpoint, request)
        elif not callable(self.rules.key):
            header = self.rules.key or engine.config.key_header
            engine.near_misses.look_for_key(attempt.endpoint, request, header)

    def _where(self, config: Config) -> str | None:
        """Say where a key is expected; None where a function of the application looks for it."""
        if callable(self.rules.key):
            return None
        what, where = "an idempotency key", f"in the header {self.rules.key or config.key_header}"
        if self._takes_token(config):
            what = "a one-time token for its key"
            where = f"{where} or in the form field {config.token_field}"
        return f"This request needs {what}, {where}: a new one for every new operation."

    def _identity(self, engine: Engine, attempt: Attempt, request: Request, sent: str) -> str:
        source, of_key = self.rules.key, partial(engine.identities.of_key, attempt.app, request)
        if callable(source):
            # Made by the application, from what two guests may both send.
            identity = of_key(unguessable=False)
        else:
            # A token is as random as a key can be.
            unguessable = self._takes_token(engine.config) or is_unguessable(sent)
            header = source or engine.config.key_header
            identity = of_key(unguessable=unguessable, header=header)
        note_identity(attempt, identity)
        return identity

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
            raise TokenExpired().because("its response may be remembered no longer")
        return known.key

    def _ttl(self, config: Config) -> float:
        return _either(self.rules.ttl, config.key_ttl)

    def _guarantee(self, config: Config) -> str:
        if self.rules.within is not None:
            # What died has left nothing, so that it may run again: exactly once.
            return AT_LEAST_ONCE
        return _either(self.rules.guarantee, config.key_guarantee)

    def _once_at_most(self, engine: Engine) -> bool:
        return self._guarantee(engine.config) == AT_MOST_ONCE


def name_store_key(engine: Engine, attempt: Attempt, identity: str, method: str, sent: str) -> str:
    """Name the store key of an idempotency key that a client sends to an endpoint."""
    named = canonical_texts("key", identity, method, attempt.endpoint or "", sent)
    return engine.name_key(attempt, engine.keyring.digest(attempt.app, named))


def _either(own: T | None, general: T) -> T:
    return general if own is None else own
