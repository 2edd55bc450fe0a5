"""Lock mode: the same request from the same sender runs once in an interval.

`LockGuard.operation` names the request; `Engine.identify` has its key PREFIX:2:lock:ENDPOINT:HASH
made by `Keyring.store_key` (request/fingerprint.py). HASH is the keyed hash of that name: sender,
route, arguments and body, or the value of `key=`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn, overload

from flask import Request, Response

from ..config.settings import SHORTEST_LEASE, OnStoreError
from ..engine.guard import Claim, ViewGuard, argument
from ..engine.values import FAILURES, LEAVE, RELEASE, Found, Operation, Settlement
from ..errors import SAFE_METHODS, ConfigurationError
from ..request.fingerprint import Selection, canonical_request, rule_of
from ..response.refusals import LeaseLost, RepeatSubmit
from ..stores.base import Running
from . import arguments
from .wrapping import Decorator, S, decorator_of

_EMPTY: tuple[object, ...] = (None, "", [], (), {})

METHODS = SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}


def _methods(label: str, value: Collection[str] | None) -> frozenset[str]:
    given = arguments.names(label, () if value is None else value)
    if unknown := {method for method in given if str(method).upper() not in METHODS}:
        raise ConfigurationError(
            f"{label} takes safe methods, such as 'GET', not "
            f"{', '.join(sorted(map(repr, unknown)))}. Unsafe methods are guarded anyway."
        )
    methods = frozenset(method.upper() for method in given)
    return methods | {"HEAD"} if "GET" in methods else methods  # the same view answers both


@dataclass(eq=False)
class LockGuard(ViewGuard):
    """The arguments of `no_repeat_submit`, and the rules of lock mode at one route."""

    mode = "lock"
    decorator = "no_repeat_submit"
    toggle = "IDEMPOTENCE_LOCK_ENABLED"
    place = 20
    outlasts_view = True
    refuses_with = (RepeatSubmit, LeaseLost)

    interval: float = argument(setting="lock_interval")
    message: object = argument(setting="lock_message")
    only: frozenset[str] | None = argument(arguments.argument_names)
    ignore: frozenset[str] | None = argument(arguments.argument_names)
    key: Callable[[], object] | None = argument(arguments.function)
    shared: bool = argument(arguments.flag, default=False)
    wait: float | None = argument(arguments.wait)
    failed: Callable[[Response], bool] | None = argument(arguments.function)
    methods: Collection[str] = argument(_methods, ())
    unless: Callable[[], object] | None = argument(arguments.function)
    observe: bool | None = argument(arguments.flag)
    on_store_error: OnStoreError | None = arguments.of_setting("on_store_error")

    def validate(self) -> None:
        if self.shared and self.key is None:
            raise ConfigurationError(
                "no_repeat_submit(shared=True) needs key=, a function that returns the subject of "
                "the lock, such as an order's id: without it, one sender could lock out all "
                "others."
            )
        if self.wait is not None and self.key is None:
            raise ConfigurationError(
                "no_repeat_submit(wait=...) needs key=: a request that waits for its turn runs, "
                "and so would the second of a double click."
            )
        if self.interval == 0 and self.key is None:
            raise ConfigurationError(
                "no_repeat_submit(interval=0) needs key=, a function that returns the subject of "
                "the lock. Without it, a repeat is a double click: give an interval in seconds."
            )
        if self.interval is not None:
            check = arguments.duration if self.key is None else arguments.wait
            self.interval = check("no_repeat_submit(interval=...)", self.interval)

    def prepare(self) -> None:
        config = self.services.config
        self._selection = Selection.by_route(config, self.only, self.ignore)
        # Without an interval every success is released by a call, so a short lease saves none.
        self._lease = min(max(self.interval or config.lease, SHORTEST_LEASE), config.lease)
        self._is_worded = self.given.message is not None

    def operation(self, request: Request) -> Operation:
        app, identities, rule = self.services.app, self.services.identities, rule_of(request)
        if self.key is None:
            identity = identities.of(app, request)
            name = canonical_request(request, self._selection, "lock", identity.text, rule)
        else:
            key = self.key()
            parts = key if isinstance(key, list | tuple) else [key]
            # All requests without a key would be one request: their senders count.
            is_shared = self.shared and not all(part in _EMPTY for part in parts)
            identity = (identities.everybody if is_shared else identities.of)(app, request)
            named = ["lock", identity.text, rule, request.method, request.endpoint, key]
            name = arguments.canonical_result("no_repeat_submit(key=...)", request, named)
        return Operation(name, lease=self._lease, wait=self.wait or 0.0, identity=identity)

    def answer(self, _claim: Claim, found: Found) -> NoReturn:
        left = self.interval
        if isinstance(found, Running):
            left = min(found.remaining, left)
        refusal = RepeatSubmit(self.message, retry_after=left)
        refusal.is_worded = self._is_worded
        raise refusal

    def settle(self, claim: Claim, now: float) -> Settlement:
        if claim.verdict in FAILURES:
            return RELEASE
        began, lease = claim.granted_at, claim.operation.lease
        if claim.was_renewed or now >= began + lease:
            # A slow view: requests that queued behind it come only now.
            return Settlement("renew", self.interval)
        if lease != self.interval:
            return Settlement("renew", began + self.interval - now)
        return LEAVE


@overload
def no_repeat_submit(interval: S) -> S: ...


@overload
def no_repeat_submit(
    interval: float | timedelta | None = None,
    message: object | None = None,
    *,
    only: Collection[str] | None = None,
    ignore: Collection[str] = (),
    key: Callable[[], object] | None = None,
    shared: bool = False,
    wait: float | timedelta | None = None,
    failed: Callable[[Response], bool] | None = None,
    methods: Collection[str] | None = None,
    unless: Callable[[], object] | None = None,
    observe: bool | None = None,
    on_store_error: OnStoreError | None = None,
) -> Decorator: ...


def no_repeat_submit(interval: object = None, message: object = None, **given: object) -> object:
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
        only: names of the arguments that count, none of them dotted; None for all.
        ignore: names of arguments that do not count, besides `IDEMPOTENCE_IGNORED_ARGS`.
        key: called without arguments, returns a value that stands for the arguments (anything
            that JSON can hold, and UUIDs); the body is then not read.
        shared: whether all senders share the lock of a key, which `key` returns. The host still
            counts, as `IDEMPOTENCE_IDENTITY_HOST` says. A request whose `key` is None, empty
            or a list of nothing else is locked for its own sender.
        wait: seconds, or a `timedelta`, that a repeat waits for the lock before it is refused;
            with the lock, it runs. Needs `key`. None: no wait. A waiting request occupies its
            worker thread.
        failed: takes the response and returns whether it is a failed result. None: the
            application's predicate.
        methods: safe methods that are guarded too, such as `("GET",)`, which includes HEAD.
        unless: called without arguments once a request, before the sender is identified and the
            store asked; if it returns true, the view runs unguarded.
        observe: whether to count and log only what the guard would have done. None: the setting
            `IDEMPOTENCE_OBSERVE`.
        on_store_error: when the store does not answer, `"reject"` the request or `"allow"` it to
            run unguarded. None: the setting `IDEMPOTENCE_ON_STORE_ERROR`.

    Raises:
        ConfigurationError: an argument of the wrong kind.
    """
    return decorator_of(LockGuard, interval, {"message": message, **given}, "interval")
