"""Key mode: the client names its operation, and every repeat gets the first response."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, overload

from flask import Request, Response

from ..config.runtime import result_failed
from ..config.settings import CLOCK_SKEW, Config, Guarantee, OnRepeat, OnStoreError, Remember
from ..engine.guard import Claim, ViewGuard, argument
from ..engine.values import FAILURES, RELEASE, Found, Operation, Settlement, Unguarded, Verdict
from ..errors import ConfigurationError
from ..exactly_once import TransactionFactory
from ..request.body import read_whole
from ..request.fingerprint import Selection, canonical, canonical_request, rule_of
from ..request.key_header import key_in_header, key_of_value
from ..request.proxies import current_request
from ..response import refusals
from ..response.headers import EXPIRES_HEADER, REPLAYED_HEADER
from ..response.records import RecordOfAnotherRequest, UnreadableRecord
from ..stores.base import Crashed, Done
from . import arguments
from .arguments import of_setting
from .wrapping import Decorator, S, Subject, decorator_of, guards_of

if TYPE_CHECKING:
    from ..exactly_once import Within

_logger = logging.getLogger("flask_idempotence")

# Arguments by which two guards of one key must agree, besides `within`.
_PROMISES = ("guarantee", "compare", "on_repeat", "remember")

_TRANSIENT = frozenset({401, 403, 408, 409, 425, 429})


def _compared(label: str, value: object) -> object:
    if not callable(value) and value is not False:
        raise ConfigurationError(
            f"{label} must be a function or False; leave it out to compare the whole request."
        )
    return arguments.function(label, value) if value else value


@dataclass(eq=False)
class KeyGuard(ViewGuard):
    """The arguments of `idempotent`, and the rules of key mode at one route."""

    mode = "key"
    decorator = "idempotent"
    toggle = "IDEMPOTENCE_KEY_ENABLED"
    makes_records = True
    takes_steps = True
    place = 30

    required: bool = argument(arguments.flag, setting="key_required")
    key: str | Callable[[], object] = of_setting("key_header", or_function=True)
    key_pattern: str | None = of_setting("key_pattern")
    ttl: float = of_setting("key_ttl")
    wait: float = of_setting("key_wait")
    on_repeat: OnRepeat = of_setting("key_on_repeat")
    guarantee: Guarantee | None = of_setting("key_guarantee")
    remember: Remember | Callable[[Response], bool] = of_setting("key_remember", or_function=True)
    ignore: frozenset[str] | None = argument(arguments.argument_names)
    compare: Callable[[], object] | Literal[False] | None = argument(_compared)
    within: TransactionFactory | None = argument(TransactionFactory)
    unless: Callable[[], object] | None = argument(arguments.function)
    observe: bool | None = argument(arguments.flag)
    on_store_error: OnStoreError | None = of_setting("on_store_error")

    def validate(self) -> None:
        if self.compare is not None and self.ignore:
            raise ConfigurationError(
                "idempotent(ignore=...) chooses from the whole request, which compare= replaces: "
                "leave one of them out."
            )
        if self.within is not None:
            if self.guarantee is not None or self.on_store_error == "allow":
                raise ConfigurationError(
                    "idempotent(within=...) promises exactly once: leave guarantee= out, and "
                    "on_store_error='allow'."
                )
            # Without a store, nothing would commit the transaction of the view.
            self.on_store_error = "reject"
        if self.guarantee == "at-most-once" and self.on_store_error == "allow":
            raise ConfigurationError(
                "idempotent(guarantee='at-most-once') cannot be kept with on_store_error='allow': "
                "the view would run unguarded. Leave one of them out."
            )

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
        is_at_most_once = self.guarantee_in(config) == "at-most-once"
        if is_at_most_once and (self.on_store_error or config.on_store_error) == "allow":
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
        ttl = config.key_ttl if self.ttl is None else self.ttl
        if self.takes_token(config) and ttl <= CLOCK_SKEW:
            raise ConfigurationError(
                f"The view {endpoint!r} takes a token for a key. Its ttl must be more than the "
                f"{CLOCK_SKEW} seconds by which clocks may differ."
            )

    def guarantee_in(self, config: Config) -> Guarantee:
        if self.within is not None:
            # A process that died has left nothing, so the view may run again: exactly once.
            return "at-least-once"
        return config.key_guarantee if self.guarantee is None else self.guarantee

    def takes_token(self, config: Config) -> bool:
        """Whether the key is a one-time token of this application."""
        return isinstance(self.key, str) and self.key.lower() == config.token_header.lower()

    def prepare(self) -> None:
        config, given = self.services.config, self.given
        self._takes_token = given.takes_token(config)
        self._pattern = None  # for tokens of this application, too
        if self.key_pattern is not None and not self._takes_token:
            self._pattern = re.compile(self.key_pattern, re.ASCII)
        self._selection = Selection.by_route(config, None, self.ignore, files=True)
        self._at_most_once = given.guarantee_in(config) == "at-most-once"

    @property
    def refuses_with(self) -> list[type[refusals.Refusal]]:
        found: list[type[refusals.Refusal]] = [refusals.KeyMissing] if self.required else []
        if self._takes_token:
            found += [refusals.TokenInvalid, refusals.TokenExpired]
        else:
            found.append(refusals.KeyInvalid)
        if self.compare is not False:
            found.append(refusals.KeyReused)
        replays = self.on_repeat == "replay"
        of_done = refusals.ResponseNotStored if replays else refusals.KeyRepeated
        found += [refusals.KeyInProgress, of_done, refusals.OutcomeUnknown, refusals.LeaseLost]
        return found

    def time_to_keep(self, given: object) -> float:
        ttl = arguments.duration("current_guard.keep(ttl=...)", given) or self.ttl
        if self._takes_token and ttl < self.ttl:
            raise ConfigurationError(
                "current_guard.keep(ttl=...): the key is a one-time token, which is good for "
                f"{self.ttl:g} seconds. Its response must be remembered for as long."
            )
        return ttl

    def has_failed(self, response: Response) -> bool:
        if self._at_most_once:
            return False
        if callable(self.remember):
            return not self.remember(response)
        if self.remember == "success":
            return super().has_failed(response)
        own = self.services.callbacks.result_failed
        return _is_transient(response) or (own is not result_failed and own(response))

    def has_failed_since(self, response: Response) -> bool:
        if self._at_most_once:
            return False
        if self.remember == "success":
            return super().has_failed_since(response)
        return _is_transient(response)

    def operation(self, request: Request) -> Operation | Unguarded:
        sent: str | Operation | None
        unguessable = None
        if callable(self.key):  # made by the application, of values that two guests may both send
            sent = key_of_value(self.key())
            unguessable = False
        elif self._takes_token:  # drawn at random
            sent = self._token(request)
            unguessable = True
        else:
            sent = key_in_header(request, self.key)
        if sent is None:
            return self._without_key(request)
        if isinstance(sent, Operation):
            return sent
        if self._pattern is not None and not self._pattern.fullmatch(sent):
            raise refusals.KeyInvalid(
                f"The idempotency key must match the regular expression {self._pattern.pattern}"
            )
        # A view that begins once, or whose writes are committed, must not find half a body.
        if self._at_most_once or self.within is not None:
            read_whole(request)
        header = self.key if isinstance(self.key, str) else None
        identity = self.services.identities.of(
            self.services.app, request, sent, unguessable=unguessable, header=header
        )
        content = None
        if self.compare is None:
            content = canonical_request(request, self._selection, "key", rule_of(request))
        elif self.compare:
            value = ["compare", self.compare()]
            content = arguments.canonical_result("idempotent(compare=...)", request, value)
        return Operation(
            name_of(identity.text, request.method, self.endpoint, sent),
            content,
            lease=self.services.config.lease,
            hold_after_crash=self.ttl if self._at_most_once else 0.0,
            wait=self.wait,
            identity=identity,
        )

    def answer(self, claim: Claim, found: Found) -> Response:
        if not found.matches:
            raise refusals.KeyReused
        if isinstance(found, Crashed):
            raise refusals.OutcomeUnknown
        if not isinstance(found, Done):
            raise refusals.KeyInProgress
        records = self.services.records
        if self.on_repeat != "replay" and not records.is_unknown(claim, found.record):
            raise refusals.KeyRepeated
        # With a content type, so that none is made up: that takes longer than all the rest.
        response = self.services.app.response_class(content_type="")
        try:
            is_whole = records.replay(claim, found.record, response)
        except RecordOfAnotherRequest as error:
            raise refusals.KeyReused from error
        except UnreadableRecord as error:
            raise refusals.ResponseNotStored from error
        if not is_whole:
            raise refusals.ResponseNotStored
        response.headers.add(REPLAYED_HEADER, "true")  # which no record holds
        if found.remaining is not None:
            response.headers.add(EXPIRES_HEADER, max(0, int(found.remaining)))
        return response

    def accept_outer(self, outer: Claim) -> None:
        """Refuse rules that placement has put around a view whose own guard it cannot see."""
        rules = [name for name in _PROMISES if getattr(self, name) != getattr(outer.guard, name)]
        begun = None if outer.transaction is None else outer.transaction.session
        if begun is not (None if self.within is None else self.within.session()):
            rules.append("within")
        if not (rules and isinstance(outer.guard, ViewGuard) and outer.guard.placed_by):
            return
        method = current_request().method
        for endpoint, view in self.services.app.view_functions.items():
            if endpoint != self.endpoint and self.given in guards_of(view, method):
                return  # the view has called another one
        outer.judge(Verdict.NOT_RUN)
        text = (
            f"The view {self.endpoint!r} has an @idempotent of its own that is hidden, and "
            f"{outer.guard.placed_by} has put another one around it, with another "
            f"{' and '.join(rules)}. Use functools.wraps in the decorator that hides the guard, "
            "or flask_idempotence.exempt on the function that is registered."
        )
        _logger.error("Flask-Idempotence: a request is answered 500. %s", text)
        raise ConfigurationError(text)

    def settle(self, claim: Claim, _now: float) -> Settlement:
        verdict = claim.verdict
        is_run = verdict is Verdict.FAILED  # and released neither by hand nor unrun
        if verdict in FAILURES and not (is_run and self._at_most_once):
            return RELEASE
        record, ttl = claim.record, claim.ttl or self.ttl
        if record is None:
            record = self.services.records.remember_status(claim, 500, ttl)
        return Settlement("complete", ttl, record)

    # The key

    def _token(self, request: Request) -> str | Operation | None:
        tokens = self.services.tokens
        text = tokens.sent_with(request)
        if text is None:
            return None
        name, issued = tokens.verify(self.services.app, text)
        # Good for as long as its response is certain to be remembered: a late repeat is refused,
        # and never runs again.
        if tokens.clock() - issued > self.ttl - CLOCK_SKEW:
            refusal = refusals.TokenExpired().because("its response may no longer be remembered")
            return Operation(name, refusal=refusal)
        return name.decode("ascii")

    def _without_key(self, request: Request) -> Unguarded:
        near_misses, needed = self.services.near_misses, ""
        if self._takes_token:
            near_misses.look_for_token(self.endpoint, request)
            field = self.services.config.token_field
            needed = f"a one-time token for its key, in the header {self.key} or in the form "
            needed += f"field {field}"
        elif not callable(self.key):
            near_misses.look_for_key(self.endpoint, request, self.key)
            needed = f"an idempotency key, in the header {self.key}"
        if self.required:
            text = f"This request needs {needed}: a new one for every new operation."
            raise refusals.KeyMissing(text if needed else None)
        return Unguarded("no key, and none is required")


def name_of(identity: str, method: str, endpoint: str, sent: str) -> bytes:
    return canonical(["key", identity, method, endpoint, sent])


def _is_transient(response: Response) -> bool:
    """Whether the same request may succeed at another time.

    That is a status of 500 or more; one that asks for a pause or reports a conflict; or one about
    credentials, which the client may send again.
    """
    return response.status_code >= 500 or response.status_code in _TRANSIENT


@overload
def idempotent(view: S, /) -> S: ...


@overload
def idempotent(
    view: None = None,
    /,
    *,
    required: bool | None = None,
    ttl: float | timedelta | None = None,
    key: str | Callable[[], object] | None = None,
    key_pattern: str | None = None,
    ignore: Collection[str] = (),
    compare: Callable[[], object] | Literal[False] | None = None,
    on_repeat: OnRepeat | None = None,
    guarantee: Guarantee | None = None,
    remember: Remember | Callable[[Response], bool] | None = None,
    wait: float | timedelta | None = None,
    unless: Callable[[], object] | None = None,
    observe: bool | None = None,
    on_store_error: OnStoreError | None = None,
    within: Within | None = None,
) -> Decorator: ...


def idempotent(view: Subject | None = None, /, **given: object) -> object:
    """Run a request with an `Idempotency-Key` once; its repeats get the first response.

    Also bare: `@idempotent`. A key belongs to its sender, endpoint and method. The rules are
    those of draft-ietf-httpapi-idempotency-key-header-07, and of Stripe's API where the draft
    leaves room. The settings `IDEMPOTENCE_KEY_…` apply where an argument is not given.

    Args:
        view: the view function or Blueprint, where the decorator is bare.
        required: refuse a request without a key. If False, its view runs unguarded.
        ttl: seconds, or a `timedelta`, for which a response is remembered.
        key: another header's name; or a function that is called without arguments and returns
            the key (a text, an integer or a UUID), or None for none. The header
            `IDEMPOTENCE_TOKEN_HEADER` means a token that this application has issued, in that
            header or in its form field.
        key_pattern: a regular expression that the whole key must match, as a string.
        ignore: names of arguments in which a repeat may differ, besides
            `IDEMPOTENCE_IGNORED_ARGS`; none of them dotted, which `compare` is for.
        compare: the content that a repeat must share with the first request. None: the whole
            request. A function, called without arguments: the value that it returns, which
            JSON can hold (or a UUID). False: nothing. The key alone decides then, and must name
            all that matters, such as the merchant in the path. The body is read only for None.
        on_repeat: `"replay"` the first response, or `"reject"` with an error.
        guarantee: `"at-least-once"`: a view that failed, or died, may run again.
            `"at-most-once"`: a view that has begun never begins again, however it ended. An
            exception counts as the error page that is made of it.
        remember: the responses that are remembered, at-least-once: `"final"`, all but those of
            500 and more and 401, 403, 408, 409, 425 and 429, and those that the application's
            own `result_failed` calls failed; `"success"`, those that are no failed results; or
            a function that takes the response and returns a bool. Other responses release
            the key.
        wait: seconds, or a `timedelta`, that a repeat waits for the first request; 0 for no
            wait. It occupies a worker thread meanwhile.
        unless: called without arguments once a request, before the sender is identified and the
            store asked; if it returns true, the view runs unguarded. The transaction of `within`
            stays.
        observe: whether to count and log only what the guard would have done. None: the setting
            `IDEMPOTENCE_OBSERVE`.
        on_store_error: `"reject"` the request or `"allow"` it to run unguarded when the store
            does not answer; at-most-once takes no `"allow"`.
        within: the SQLAlchemy session in which the view writes (Flask-SQLAlchemy's
            `db.session`, another `scoped_session`, or a function that returns the session).
            The view does not commit: the guard does, together with the record of the
            response, so that the view happens exactly once. The store must be a table in the
            same database. A failed result is rolled back. It is a guarantee of its own,
            without `guarantee`, and needs the extra `sql`.

    Raises:
        ConfigurationError: an argument of the wrong kind.
    """
    return decorator_of(KeyGuard, view, given)
