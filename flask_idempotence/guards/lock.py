"""Lock mode: the same request from the same sender runs once in an interval."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, overload

from ..config.settings import SHORTEST_LEASE, OnStoreError
from ..engine.guard import (
    FAILURES,
    SAFE_METHODS,
    Ending,
    Finding,
    HoldUntil,
    Keep,
    Question,
    Release,
    Services,
    Settlement,
    ViewGuard,
    ViewPlan,
)
from ..errors import ConfigurationError
from ..request.fingerprint import canonical_request, rule_of, selection_of
from ..response.refusals import RepeatSubmit
from ..stores.base import Running
from . import arguments
from .wrapping import decorator_of, guarded

if TYPE_CHECKING:
    from flask import Request, Response

P = ParamSpec("P")
R = TypeVar("R")

_EMPTY: tuple[object, ...] = (None, "", [], (), {})

METHODS = SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}


class LockPlan(ViewPlan):
    """The rules of lock mode at one route."""

    def __init__(self, guard: LockGuard, services: Services) -> None:
        config = services.config
        self._app = services.app
        self._identities = services.identities
        self._key = guard.key
        self._selection = selection_of(guard.only, guard.ignore, config.ignored_args)
        self._interval = config.lock_interval if guard.interval is None else guard.interval
        # Without an interval every success is released by a call, so a short lease saves none.
        self._lease = min(max(self._interval or config.lease, SHORTEST_LEASE), config.lease)
        self._wait = guard.wait
        self._shared = guard.shared
        self._is_worded = guard.message is not None
        self._message = config.lock_message if guard.message is None else guard.message
        self.has_failed = guard.failed

    def question(self, request: Request) -> Question:
        """Ask for the sender and the request, without a key of the client's."""
        identity, name = self._name(request)
        return Question(name, lease=self._lease, wait=self._wait, identity=identity)

    def _name(self, request: Request) -> tuple[str, bytes]:
        """Return the identity that counts, and the name of the operation."""
        rule = rule_of(request)
        if self._key is None:
            identity = self._identities.of(self._app, request)
            return identity, canonical_request(request, self._selection, "lock", identity, rule)
        key = self._key()
        # All requests without a key would be one request: their senders count.
        is_shared = self._shared and not _is_empty(key)
        identities = self._identities
        identity = (identities.of_all if is_shared else identities.of)(self._app, request)
        named = ["lock", identity, rule, request.method, request.endpoint, key]
        text = arguments.canonical_result("no_repeat_submit(key=...)", request, named)
        return identity, text

    def answer(self, finding: Finding) -> NoReturn:
        """Refuse a repeat."""
        left = self._interval
        if isinstance(finding.outcome, Running):
            left = min(finding.outcome.remaining, left)
        refusal = RepeatSubmit(self._message, retry_after=left)
        refusal.is_worded = self._is_worded
        raise refusal

    def settle(self, ending: Ending) -> Settlement:
        """Release a failure; hold a success until the interval is over."""
        if ending.verdict in FAILURES:
            return Release()
        if ending.is_overrun:
            # A slow view: requests that queued behind it come only now.
            return HoldUntil(ending.now + self._interval)
        if ending.lease != self._interval:
            return HoldUntil(ending.granted_at + self._interval)
        return Keep()


def _is_empty(key: object) -> bool:
    """Whether a key names nothing: it is empty, or a list of nothing else."""
    parts = key if isinstance(key, list | tuple) else [key]
    return all(part in _EMPTY for part in parts)


@dataclass(eq=False)
class LockGuard(ViewGuard):
    """The arguments of `no_repeat_submit`, checked; None for the setting."""

    mode = "lock"
    decorator = "no_repeat_submit"
    toggle = "IDEMPOTENCE_LOCK_ENABLED"

    interval: float | None = None
    message: object | None = None
    only: frozenset[str] | None = None
    ignore: frozenset[str] = field(default=frozenset())
    key: Callable[[], object] | None = None
    shared: bool = False
    wait: float = 0.0
    failed: Callable[[Response], bool] | None = None
    methods: Collection[str] = frozenset()
    on_store_error: OnStoreError | None = None

    def plan(self, services: Services, endpoint: str | None) -> LockPlan:
        """Return the plan of a route."""
        del endpoint
        return LockPlan(self, services)


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
    shared: bool = False,
    wait: float | timedelta | None = None,
    failed: Callable[[Response], bool] | None = None,
    methods: Collection[str] | None = None,
    on_store_error: OnStoreError | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def no_repeat_submit(
    interval: Any = None,
    message: object | None = None,
    *,
    only: Collection[str] | None = None,
    ignore: Collection[str] = (),
    key: Callable[[], Any] | None = None,
    shared: bool = False,
    wait: float | timedelta | None = None,
    failed: Callable[[Response], bool] | None = None,
    methods: Collection[str] | None = None,
    on_store_error: OnStoreError | None = None,
) -> Any:
    """Refuse the same request from the same sender while it runs, and for an interval.

    Also bare: `@no_repeat_submit`. The client needs nothing. A repeat has the same sender (the
    identity) and the same content (method, endpoint, arguments and body, without files). A failed
    result or an exception releases the lock at once.

    Args:
        interval: seconds, fractions included, or a `timedelta`; counted from the claim, and from
            the end of a view that ran for longer than a third of it. 0, which needs `key`: the
            lock is free when the view has ended. None: the setting `IDEMPOTENCE_LOCK_INTERVAL`.
        message: the text of the refusal; anything with a `str()`. None: the setting
            `IDEMPOTENCE_LOCK_MESSAGE`.
        only: names of the arguments that count; None for all.
        ignore: names of arguments that do not count, besides `IDEMPOTENCE_IGNORED_ARGS`.
        key: called without arguments, returns a value that stands for the arguments (anything
            that JSON can hold); the body is then not read.
        shared: whether all senders share the lock of a key, which `key` returns. The host still
            counts, as `IDEMPOTENCE_IDENTITY_HOST` says. A request whose `key` is None, empty
            or a list of nothing else is locked for its own sender.
        wait: seconds, or a `timedelta`, that a repeat waits for the lock before it is refused;
            with the lock, it runs. Needs `key`. None: no wait. A waiting request occupies its
            worker thread.
        failed: takes the response and returns whether it is a failed result. None: the
            application's predicate.
        methods: safe methods that are guarded too, such as `("GET",)`, which includes HEAD.
        on_store_error: when the store does not answer, `"reject"` the request or `"allow"` it to
            run unguarded. None: the setting `IDEMPOTENCE_ON_STORE_ERROR`.

    Raises:
        ConfigurationError: an argument of the wrong kind.
    """
    if callable(interval):
        return guarded(LockGuard(), interval)
    name = LockGuard.decorator
    arguments.function(name, "key", key)
    arguments.function(name, "failed", failed)
    arguments.flag(name, "shared", shared)
    if shared and key is None:
        raise ConfigurationError(
            "no_repeat_submit(shared=True) needs key=, a function that returns the subject of "
            "the lock, such as an order's id: without it, one sender could lock out all others."
        )
    if wait is not None and key is None:
        raise ConfigurationError(
            "no_repeat_submit(wait=...) needs key=: a request that waits for its turn runs, and "
            "so would the second of a double click."
        )
    if interval == 0 and key is None:
        raise ConfigurationError(
            "no_repeat_submit(interval=0) needs key=, a function that returns the subject of the "
            "lock. Without it, a repeat is a double click: give an interval in seconds."
        )
    guard = LockGuard(
        interval=arguments.duration(name, "interval", interval, allow_zero=key is not None),
        message=message,
        only=None if only is None else arguments.names(name, "only", only),
        ignore=arguments.names(name, "ignore", ignore),
        key=key,
        shared=shared,
        wait=arguments.wait(name, wait),
        failed=failed,
        methods=_methods(arguments.names(name, "methods", methods)),
        on_store_error=arguments.store_error_policy(name, on_store_error),
    )
    return decorator_of(guard)


def _methods(given: frozenset[str]) -> frozenset[str]:
    if unknown := {method for method in given if str(method).upper() not in METHODS}:
        raise ConfigurationError(
            f"no_repeat_submit(methods=...) takes safe methods, such as 'GET', not "
            f"{', '.join(sorted(map(repr, unknown)))}. Unsafe methods are guarded anyway."
        )
    methods = frozenset(method.upper() for method in given)
    return methods | {"HEAD"} if "GET" in methods else methods  # the same view answers both
