"""Key mode: the client names its operation, and every repeat gets the first response."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..config.settings import (
    ALLOW,
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    CLOCK_SKEW,
    REJECT,
    SUCCESS,
    Config,
    Guarantee,
    OnRepeat,
    OnStoreError,
    Remember,
)
from ..engine.guard import (
    FAILURES,
    Complete,
    Ending,
    Finding,
    Question,
    Release,
    Services,
    Settlement,
    Unguarded,
    Verdict,
    ViewGuard,
    ViewPlan,
)
from ..errors import ConfigurationError
from ..request.fingerprint import canonical_request, canonical_texts, rule_of, selection_of
from ..request.key_header import key_in_header, key_of_value
from ..response.headers import REPLAYED_HEADER
from ..response.records import RecordOfAnotherRequest, UnreadableRecord
from ..response.refusals import (
    KeyInProgress,
    KeyInvalid,
    KeyMissing,
    KeyRepeated,
    KeyReused,
    OutcomeUnknown,
    ResponseNotStored,
    TokenExpired,
)
from ..stores.base import Crashed, Done
from . import arguments

if TYPE_CHECKING:
    from flask import Request, Response

    from ..exactly_once.factory import TransactionFactory
    from ..response.records import RecordContext

T = TypeVar("T")

_TRANSIENT = frozenset({401, 403, 408, 409, 425, 429})


@dataclass(eq=False)
class KeyGuard(ViewGuard):
    """The arguments of `idempotent`, checked; None for the setting."""

    mode = "key"
    decorator = "idempotent"
    toggle = "IDEMPOTENCE_KEY_ENABLED"

    required: bool | None = None
    ttl: float | None = None
    key: str | Callable[[], Any] | None = None
    key_pattern: str | None = None
    ignore: frozenset[str] = field(default=frozenset())
    compare: Callable[[], object] | Literal[False] | None = None
    on_repeat: OnRepeat | None = None
    guarantee: Guarantee | None = None
    remember: Remember | Callable[[Response], bool] | None = None
    wait: float | None = None
    on_store_error: OnStoreError | None = None
    within: TransactionFactory | None = None
    only_methods: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.within is not None:
            # Without a store, nothing would commit the transaction of the view.
            self.on_store_error = REJECT

    def plan(self, services: Services, endpoint: str | None) -> KeyPlan:
        """Return the plan of a route."""
        return KeyPlan(self, services, endpoint or "")

    def accept(self, view: Callable[..., object]) -> None:
        """Refuse an async view whose writes would go into another thread's session."""
        if self.within is not None and self.within.of_thread and inspect.iscoroutinefunction(view):
            raise ConfigurationError(
                "idempotent(within=...): an async view runs in a thread of its own, where this "
                "scoped_session is another session, which is never committed. Give it a scopefunc "
                "that tells requests apart, as Flask-SQLAlchemy does, or pass a function that "
                "returns the view's session."
            )

    def check(self, endpoint: str, config: Config) -> None:
        """Check the guard of a view against the settings."""
        is_at_most_once = self.guarantee_in(config) == AT_MOST_ONCE
        if is_at_most_once and (self.on_store_error or config.on_store_error) == ALLOW:
            raise ConfigurationError(
                f"The view {endpoint!r} is guarded at-most-once, which cannot be kept with "
                "on_store_error='allow' (route or setting): the view would run unguarded. Give "
                "the route on_store_error='reject', or choose guarantee='at-least-once'."
            )
        if is_at_most_once and self.remember is not None:
            raise ConfigurationError(
                f"The view {endpoint!r} is guarded at-most-once, which remembers every response: "
                "leave idempotent(remember=...) out, or choose guarantee='at-least-once'."
            )
        if self.takes_token(config) and self.key_pattern is not None:
            raise ConfigurationError(
                f"The view {endpoint!r} takes a token of this application for a key: leave "
                "idempotent(key_pattern=...) out."
            )
        if self.takes_token(config) and _either(self.ttl, config.key_ttl) <= CLOCK_SKEW:
            raise ConfigurationError(
                f"The view {endpoint!r} takes a token for a key. Its ttl must be more than the "
                f"{CLOCK_SKEW} seconds by which clocks may differ."
            )

    def guarantee_in(self, config: Config) -> Guarantee:
        """Return the guarantee of the route."""
        if self.within is not None:
            # A process that died has left nothing, so the view may run again: exactly once.
            return AT_LEAST_ONCE
        return _either(self.guarantee, config.key_guarantee)

    def takes_token(self, config: Config) -> bool:
        """Whether the key is a one-time token of this application."""
        return isinstance(self.key, str) and self.key.lower() == config.token_header.lower()


class KeyPlan(ViewPlan):
    """The rules of key mode at one route."""

    def __init__(self, guard: KeyGuard, services: Services, endpoint: str) -> None:
        config = services.config
        self._services = services
        self._endpoint = endpoint
        self._takes_token = guard.takes_token(config)
        self._read: Callable[[], Any] | None = guard.key if callable(guard.key) else None
        self._header = guard.key if isinstance(guard.key, str) else config.key_header
        pattern = _either(guard.key_pattern, config.key_pattern)
        self._pattern = None  # for tokens of this application, too
        if pattern is not None and not self._takes_token:
            self._pattern = re.compile(pattern, re.ASCII)
        self._required = _either(guard.required, config.key_required)
        self._compare = guard.compare
        self._selection = selection_of(None, guard.ignore, config.ignored_args, files=True)
        self._lease = config.lease
        self._ttl = _either(guard.ttl, config.key_ttl)
        self._wait = _either(guard.wait, config.key_wait)
        self._replays = _either(guard.on_repeat, config.key_on_repeat) == "replay"
        self._at_most_once = guard.guarantee_in(config) == AT_MOST_ONCE
        self._keep = self._ttl if self._at_most_once else 0.0
        self.within = guard.within
        self.record = lambda context, response: services.records.remember(
            context, response, self._ttl
        )
        remember = config.key_remember if guard.remember is None else guard.remember
        self._judge_by(remember)

    def _judge_by(self, remember: Remember | Callable[[Response], bool]) -> None:
        if self._at_most_once:
            self.has_failed = self.has_failed_since = _never
        elif callable(remember):
            self.has_failed = lambda response: not remember(response)
            self.has_failed_since = _is_transient
        elif remember != SUCCESS:
            self.has_failed, self.has_failed_since = self._may_fare_better, _is_transient

    def _may_fare_better(self, response: Response) -> bool:
        own = self._services.callbacks.result_failed
        return _is_transient(response) or (own is not None and own(response))

    def question(self, request: Request) -> Question | Unguarded:
        """Ask for the key that the client sent."""
        sent = self._sent(request)
        if isinstance(sent, Question):
            return sent
        if sent is None:
            self._warn_of_near_miss(request)
            if self._required:
                raise KeyMissing(self._expected())
            return Unguarded("no key, and none is required")
        if self._pattern is not None and not self._pattern.fullmatch(sent):
            raise KeyInvalid(
                f"The idempotency key must match the regular expression {self._pattern.pattern}"
            )
        identity = self._identity(request, sent)
        content = (
            canonical_request(request, self._selection, "key", rule_of(request))
            if self._compare is None
            else self._compared(request)
        )
        return Question(
            name_of(identity, request.method, self._endpoint, sent),
            content,
            lease=self._lease,
            keep=self._keep,
            wait=self._wait,
            identity=identity,
        )

    def answer(self, finding: Finding) -> Response:
        """Replay the response that is remembered, or refuse."""
        found = finding.outcome
        if not getattr(found, "matches", True):
            raise KeyReused
        if isinstance(found, Crashed):
            raise OutcomeUnknown
        if not isinstance(found, Done):
            raise KeyInProgress
        if not self._replays:
            raise KeyRepeated
        return self._replay(finding.sealed, found.record)

    def _replay(self, sealed: RecordContext, record: bytes) -> Response:
        # With a content type, so that none is made up: that takes longer than all the rest.
        response = self._services.app.response_class(content_type="")
        try:
            is_whole = self._services.records.replay(sealed, record, response)
        except RecordOfAnotherRequest as error:
            raise KeyReused from error
        except UnreadableRecord as error:
            raise ResponseNotStored from error
        if not is_whole:
            raise ResponseNotStored
        response.headers[REPLAYED_HEADER] = "true"
        return response

    def settle(self, ending: Ending) -> Settlement:
        """Remember the response, or release an operation that may run again."""
        is_by_hand = ending.verdict is Verdict.RELEASED
        if ending.verdict in FAILURES and (is_by_hand or not self._at_most_once):
            return Release()
        record = ending.record
        if record is None:
            record = self._services.records.remember_status(ending.sealed, 500, self._ttl)
        return Complete(record, self._ttl)

    # The key

    def _sent(self, request: Request) -> str | Question | None:
        if self._read is not None:
            return key_of_value(self._read())
        if self._takes_token:
            return self._token(request)
        return key_in_header(request, self._header)

    def _token(self, request: Request) -> str | Question | None:
        tokens = self._services.tokens
        text = tokens.sent_with(request)
        if text is None:
            return None
        name, issued = tokens.verify(self._services.app, text)
        # Good for as long as its response is certain to be remembered: a late repeat is refused,
        # and never runs again.
        if tokens.clock() - issued > self._ttl - CLOCK_SKEW:
            refusal = TokenExpired().because("its response may no longer be remembered")
            return Question(name, refusal=refusal)
        return name.decode("ascii")

    def _identity(self, request: Request, sent: str) -> str:
        of_key = self._services.identities.of_key
        if self._read is not None:
            # Made by the application, from values that two guests may both send.
            return of_key(self._services.app, request, sent, unguessable=False)
        unguessable = True if self._takes_token else None  # a token is drawn at random
        return of_key(
            self._services.app, request, sent, unguessable=unguessable, header=self._header
        )

    def _compared(self, request: Request) -> bytes | None:
        if not self._compare:
            return None
        compared = ["compare", self._compare()]
        return arguments.canonical_result("idempotent(compare=...)", request, compared)

    def _warn_of_near_miss(self, request: Request) -> None:
        if self._takes_token:
            self._services.near_misses.look_for_token(self._endpoint, request)
        elif self._read is None:
            self._services.near_misses.look_for_key(self._endpoint, request, self._header)

    def _expected(self) -> str | None:
        """Return the text about the place of a key; None where a function reads it."""
        if self._read is not None:
            return None
        kind, where = "an idempotency key", f"in the header {self._header}"
        if self._takes_token:
            kind = "a one-time token for its key"
            where = f"{where} or in the form field {self._services.config.token_field}"
        return f"This request needs {kind}, {where}: a new one for every new operation."


def name_of(identity: str, method: str, endpoint: str, sent: str) -> bytes:
    """Return the canonical text of an idempotency key that a client sends to an endpoint."""
    return canonical_texts("key", identity, method, endpoint, sent)


def _either(own: T | None, general: T) -> T:
    return general if own is None else own


def _never(response: Response) -> bool:
    del response
    return False


def _is_transient(response: Response) -> bool:
    """Whether the same request may succeed at another time.

    That is a status of 500 or more; one that asks for a pause or reports a conflict; or one about
    credentials, which the client may send again.
    """
    return response.status_code >= 500 or response.status_code in _TRANSIENT
