"""Lock mode: the same request from the same sender runs once in an interval."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from marshmallow import ValidationError

from ..config.settings import SHORTEST_LEASE, seconds
from ..engine.claim import Attempt, Hold
from ..engine.debug_log import note_identity
from ..engine.engine import Engine
from ..engine.guard import KEPT, SAFE_METHODS, Settlement, ViewGuard
from ..engine.store_calls import checked_policy
from ..errors import ConfigurationError
from ..request.fingerprint import canonical, canonical_request, rule_of, selection_of
from ..response.refusals import RepeatSubmit
from ..signals import completed
from ..stores.base import NO_FINGERPRINT, Outcome, Renewal, Running
from .wrapping import decorator_of, guarded

if TYPE_CHECKING:
    from flask import Request, Response

P = ParamSpec("P")
R = TypeVar("R")


METHODS = SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}


class LockGuard(ViewGuard):
    """What lock mode does in its own way."""

    mode = "lock"
    toggle = "IDEMPOTENCE_LOCK_ENABLED"

    def __init__(
        self,
        interval: float | None,
        message: object | None,
        *,
        only: Collection[str] | None,
        ignore: Collection[str],
        key: Callable[[], Any] | None,
        failed: Callable[[Response], bool] | None,
        methods: Collection[str],
        on_store_error: str | None,
    ) -> None:
        self.interval = interval
        self.message = message
        self.only = None if only is None else frozenset(only)
        self.ignore = frozenset(ignore)
        self.key = key
        self.failed = failed
        self.on_store_error = checked_policy("no_repeat_submit", on_store_error)
        self.methods = frozenset(method.upper() for method in methods)
        if "GET" in self.methods:  # the same view answers both
            self.methods |= {"HEAD"}

    def enter(self, engine: Engine, attempt: Attempt, request: Request) -> Hold | None:
        """Claim the hash of who asks for what, for the interval."""
        digest = engine.keyring.digest(attempt.app, self._question(engine, attempt, request))
        key = engine.name_key(attempt, digest)
        if engine.held(request, key):
            return None
        interval = self._interval(engine)
        lease = min(max(interval, SHORTEST_LEASE), engine.config.lease)
        outcome = engine.claim(self, attempt, key, NO_FINGERPRINT, lease, keep=0)
        if outcome is None or isinstance(outcome, Hold):
            return outcome
        left = min(outcome.remaining, interval) if isinstance(outcome, Running) else interval
        message = engine.config.lock_message if self.message is None else self.message
        raise RepeatSubmit(message, retry_after=left)

    def settle(self, engine: Engine, hold: Hold, *, failed: bool) -> Settlement:
        """Release what failed; hold what succeeded until the interval is over."""
        if failed:
            return engine.release(hold)
        interval = self._interval(engine)
        if hold.renewed or engine.now() >= hold.lease_end:
            # A slow view: whoever clicked meanwhile may be looked at only after it.
            return self._hold_until(engine, hold, engine.now() + interval)
        if hold.lease != interval:
            return self._hold_until(engine, hold, hold.granted_at + interval)
        return KEPT

    @staticmethod
    def _hold_until(engine: Engine, hold: Hold, moment: float) -> Settlement:
        store, key, owner = engine.store, hold.key, hold.owner

        def end() -> Outcome:
            left = moment - engine.now()
            if left <= 0:
                return store.release(key, owner)
            outcome = store.renew([Renewal(key, owner, left)])[0]
            if outcome is Outcome.STALE:
                # The keeper could not run (a view that lets no other thread in): if nobody took
                # the key, hold it again, for whoever queued behind this view is still a repeat.
                store.claim(key, owner, NO_FINGERPRINT, left, keep=0)
            return outcome

        return Settlement(completed, "renew", end)

    def has_failed(self, engine: Engine, response: Response) -> bool:
        """Ask the route's own predicate, or the application's."""
        return (self.failed or engine.hooks.has_failed)(response)

    def _interval(self, engine: Engine) -> float:
        return engine.config.lock_interval if self.interval is None else self.interval

    def _question(self, engine: Engine, attempt: Attempt, request: Request) -> bytes:
        identity, rule = engine.identities.of(attempt.app, request), rule_of(request)
        note_identity(attempt, identity)
        if self.key is not None:
            asked = ["lock", identity, rule, request.method, request.endpoint, self.key()]
            try:
                return canonical(asked)
            except TypeError as error:
                raise ConfigurationError(
                    f"no_repeat_submit(key=...) of {request.endpoint!r} must return what JSON is "
                    f"made of: {error}."
                ) from None
        selection = selection_of(self.only, self.ignore, engine.config.ignored_args)
        return canonical_request(request, selection, "lock", identity, rule)


@overload
def no_repeat_submit(interval: Callable[P, R]) -> Callable[P, R]: ...


@overload
def no_repeat_submit(
    interval: float | timedelta | None = None,
    message: object | None = None,
    *,
    only: Collection[str] | None = None,
    ignore: Collection[str] = (),
    key: Callable[[], Any] | None = None,
    failed: Callable[[Response], bool] | None = None,
    methods: Collection[str] | None = None,
    on_store_error: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def no_repeat_submit(
    interval: Any = None,
    message: object | None = None,
    *,
    only: Collection[str] | None = None,
    ignore: Collection[str] = (),
    key: Callable[[], Any] | None = None,
    failed: Callable[[Response], bool] | None = None,
    methods: Collection[str] | None = None,
    on_store_error: str | None = None,
) -> Any:
    """Turn away the same request from the same sender while it runs, and for an interval.

    Also bare: `@no_repeat_submit`. Nothing is asked of the client. A repeat is recognised by who
    asks (the identity) and what is asked (method, endpoint, arguments and body, without files).
    A failed result or an exception gives the request free at once.

    Args:
        interval: seconds, fractions included, or a `timedelta`; counted from the claim, and from
            the end of a view that ran for longer than a third of it. None: the setting
            `IDEMPOTENCE_LOCK_INTERVAL`.
        message: what the sender of a repeat is told; anything with a `str()`. None: the setting
            `IDEMPOTENCE_LOCK_MESSAGE`.
        only: names of the arguments that count; None for all.
        ignore: names of arguments that do not count, besides `IDEMPOTENCE_IGNORED_ARGS`.
        key: called without arguments, returns what stands for the arguments (anything that JSON
            is made of); the body is then not read.
        failed: takes the response and returns whether it is a failed result. None: the
            application's predicate.
        methods: safe methods that are guarded too, such as `("GET",)`, which includes HEAD.
        on_store_error: `"reject"` or `"allow"`, in place of `IDEMPOTENCE_ON_STORE_ERROR`.

    Raises:
        ConfigurationError: an argument of the wrong kind.
    """
    if callable(interval):
        return guarded(_lock_guard(None, None), interval)
    guard = _lock_guard(
        interval,
        message,
        only=only,
        ignore=ignore,
        key=key,
        failed=failed,
        methods=methods,
        on_store_error=on_store_error,
    )
    return decorator_of(guard)


def _lock_guard(
    interval: float | timedelta | None,
    message: object | None,
    *,
    only: Collection[str] | None = None,
    ignore: Collection[str] = (),
    key: Callable[[], Any] | None = None,
    failed: Callable[[Response], bool] | None = None,
    methods: Collection[str] | None = None,
    on_store_error: str | None = None,
) -> LockGuard:
    for name, function in (("key", key), ("failed", failed)):
        if function is not None and not callable(function):
            raise ConfigurationError(f"no_repeat_submit({name}=...) must be callable.")
    for name, names in (("only", only), ("ignore", ignore), ("methods", methods)):
        if isinstance(names, str):
            raise ConfigurationError(
                f"no_repeat_submit({name}=...) takes a collection of names, not one string."
            )
    unknown = {method for method in methods or () if str(method).upper() not in METHODS}
    if unknown:
        raise ConfigurationError(
            f"no_repeat_submit(methods=...) takes safe methods, such as 'GET', not "
            f"{', '.join(sorted(map(repr, unknown)))}. Unsafe methods are guarded anyway."
        )
    try:
        length = None if interval is None else seconds(interval)
    except ValidationError as error:
        raise ConfigurationError(f"no_repeat_submit(interval=...): {error.messages[0]}") from None
    return LockGuard(
        length,
        message,
        only=only,
        ignore=ignore,
        key=key,
        failed=failed,
        methods=methods or (),
        on_store_error=on_store_error,
    )
