"""The wrapper of a guard around a view: made by a decorator, run by requests, found by checks."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from flask import Blueprint, Flask, Request, Response, after_this_request, current_app

from ..engine.debug_log import log_decision
from ..engine.engine import Engine, engine_of
from ..engine.guard import Claim, ViewGuard, arguments_of
from ..engine.observing import Observation
from ..engine.state import RequestState, state_of
from ..engine.values import Operation, Unguarded
from ..errors import SAFE_METHODS, ConfigurationError
from ..request.body import guard_input
from ..request.proxies import actual, current_context
from ..response.headers import forbid_storing, may_be_stored
from ..response.refusals import Refusal

if TYPE_CHECKING:
    from flask.ctx import RequestContext

_logger = logging.getLogger("flask_idempotence")

P = ParamSpec("P")
R = TypeVar("R")
Subject = Callable[..., object] | Blueprint
S = TypeVar("S", bound=Subject)

GUARDED = "__idempotence_guarded__"  # marks a view that a decorator has put behind a guard
CARRIED = "__idempotence_guards__"  # where a Blueprint has its guards, by mode
HAS_SERVED = "__idempotence_served__"  # marks a Blueprint whose guards are around its views

_COPIED = (
    "{} of the endpoint {!r} was called in a copy of its request's context, as in a thread that a "
    "decorator starts. The response is not seen there: nothing could be remembered or committed. "
    "Put such a decorator inside the guard."
)

# Where a wrapper has itself and its guard: `wraps` copies it to other functions.
_GUARD = "__idempotence_guard__"


class Decorator:
    """A guard with its arguments, for a view function or a Blueprint."""

    def __init__(self, guard: ViewGuard) -> None:
        self.guard = guard

    def __call__(self, view: S, /) -> S:
        if isinstance(view, Blueprint):
            self._carry(view)
            return view
        behind_guard: Any = put_behind(self.guard, view)
        # For the check of the order. A bound method or a builtin takes no mark: there, a wrong
        # order goes unnoticed.
        with contextlib.suppress(AttributeError):
            setattr(view, GUARDED, view)
        return behind_guard  # type: ignore[no-any-return]  # a function like the view

    def _carry(self, blueprint: Blueprint) -> None:
        """Let a Blueprint carry the guard, which the first request puts around its views."""
        guard, known = self.guard, vars(blueprint)
        carried = known.setdefault(CARRIED, {})
        if guard.mode in carried or HAS_SERVED in known:
            reason = "has such a guard" if guard.mode in carried else "has served a request"
            raise ConfigurationError(
                f"{guard.decorator} cannot guard the Blueprint {blueprint.name!r}, which {reason} "
                "already. Guard it once, where it is made."
            )
        carried[guard.mode] = guard
        # One that is registered takes no functions any more.
        with contextlib.suppress(AssertionError):
            blueprint.before_request(_demand_extension)


def decorator_of(
    kind: type[ViewGuard], first: Any, given: dict[str, object], name: str = ""
) -> object:
    """Return a decorator with these arguments; given a view or a Blueprint first, decorate it.

    Else the first argument has this name.
    """
    if unknown := given.keys() - {argument.name for argument in arguments_of(kind)}:
        raise TypeError(f"{kind.decorator}() got an unexpected keyword argument {min(unknown)!r}")
    if name and not (callable(first) or isinstance(first, Blueprint)):
        return Decorator(kind(**{name: first}, **given))
    decorate = Decorator(kind(**given))
    return decorate if first is None else decorate(first)


def _demand_extension() -> None:
    engine_of(actual(current_app))


def put_behind(guard: ViewGuard, view: Callable[P, R]) -> Callable[P, R]:
    if isinstance(view, type | Flask) or not callable(view):
        raise TypeError(
            f"A guard decorates a view function, not {view!r}. For a class-based view, decorate "
            "its methods, or name the guard in its `decorators`. Pass options by name, as in "
            "idempotent(ttl=60)."
        )
    guard.accept(view)
    is_async = inspect.iscoroutinefunction(view)

    @wraps(view)
    def behind_guard(*args: P.args, **kwargs: P.kwargs) -> Any:
        context = current_context()
        app, request = context.app, context.request
        call = partial(app.ensure_sync(view) if is_async else view, *args, **kwargs)
        engine = engine_of(app)  # which fails for safe methods, too, where there is none
        if not covers(guard, request.method):
            claim = Claim(app, guard, request.endpoint)
            log_decision(claim, f"{request.method} needs no guard: the view runs unguarded")
            state_of(request).run_unguarded(claim)
            return call()
        return run(engine, context, guard, call)

    setattr(behind_guard, _GUARD, (behind_guard, guard))
    return behind_guard


def run(
    engine: Engine, context: RequestContext, guard: ViewGuard, call: Callable[[], R]
) -> R | Response:
    """Run a view behind its guard.

    Returns the view's value, untouched, or the response that is replayed in its place.
    """
    app, request = context.app, context.request
    endpoint = request.endpoint
    bound = engine.bound(guard, endpoint)
    state = state_of(request)
    observes = guard.observe
    if observes is None and app.config["IDEMPOTENCE_OBSERVE"] is not False:
        observes = engine.switches.observes(app)
    if not engine.is_on(app, guard.toggle):
        ask: Callable[[], Operation | Unguarded] = bound.switched_off
    elif observes:
        return _run_observed(engine, context, bound, call)
    elif state.number and state.context != id(context):
        raise ConfigurationError(_COPIED.format(guard.decorator, endpoint))
    elif bound.unless is not None and bound.unless():
        ask = partial(Unguarded, "unless= says so")
    else:
        guard_input(request.environ)
        ask = partial(bound.operation, request)
    claim = Claim(app, bound, endpoint)
    try:
        admission = engine.enter(claim, ask, state.claims)
    except Refusal:
        _mark_stopped(engine, app, request, bound)
        raise
    for outer in state.claims:
        outer.is_stopped = False  # where this guard has refused before
    if admission.reply is not None:
        return _replay(engine, state, request, admission.reply)
    if admission.claim is None:
        state.run_unguarded(claim)
        return call()
    return engine.settling.view(admission.claim, state, context, call)


def _replay(engine: Engine, state: RequestState, request: Request, replay: Response) -> Response:
    state.replayed = 0
    if not may_be_stored(replay):
        forbid_storing(request)  # it may hold a token, and a hook may allow caches to store it
    after_this_request(partial(_restore_replay, engine, state, replay))
    return replay


def _run_observed(
    engine: Engine, context: RequestContext, guard: ViewGuard, call: Callable[[], R]
) -> R:
    request, state = context.request, state_of(context.request)
    observation = state.observed
    if not isinstance(observation, Observation):
        observation = state.observed = Observation(engine)
    observed = observation.ask(request, guard)
    claim = Claim(engine.services.app, guard, request.endpoint)
    admission = engine.enter(claim, partial(Unguarded, "the guard only observes"))
    claim.key = observation.store_key  # by which its steps have their keys
    state.run_unguarded(claim)
    try:
        if admission.claim is not None:  # of no operation: the transaction of within=
            return engine.settling.view(claim, state, context, call)
        return call()
    finally:
        if observed is not None:
            after_this_request(partial(observation.record, observed))


def _mark_stopped(engine: Engine, app: Flask, request: Request, refusing: ViewGuard) -> None:
    """Note at the claims of the guards around one that refuses that the view has not run.

    A guard that another view has brought, which this one calls, is not among its guards: then the
    view has run, and so it has where the guard has let it run before.
    """
    endpoint, claims = request.endpoint or "", state_of(request).claims
    if not claims:
        return
    found = guards_of(app.view_functions.get(endpoint), request.method)
    guards = [engine.bound(guard, endpoint) for guard in found]
    if refusing in guards and all(claim.guard is not refusing for claim in claims):
        for claim in claims:
            claim.is_stopped |= claim.guard in guards[: guards.index(refusing)]


def _restore_replay(
    engine: Engine, state: RequestState, replay: Response, response: Response
) -> Response:
    """Return the replay in place of the response that decorators outside the guard made of it.

    The recorded response has been through them already. An answer of their own is passed on: an
    error, a redirect or a failed result may come from a check after the view.
    """
    if response is not replay:
        if _is_own_answer(engine, response, replay):
            return response
        response.close()
    state.replayed = replay.status_code
    return replay


def _is_own_answer(engine: Engine, response: Response, replay: Response) -> bool:
    if response.status_code >= 300 and response.status_code != replay.status_code:
        return True
    has_failed = engine.services.callbacks.result_failed
    try:
        return has_failed(response) and not has_failed(replay)
    except Exception:
        _logger.exception("Cannot tell whether a later check has refused a replay.")
        return True


def covers(guard: ViewGuard, method: str) -> bool:
    if guard.only_methods is not None:
        return method in guard.only_methods
    return method not in SAFE_METHODS or method in guard.methods


def guards_of(view: object, method: str) -> Iterator[ViewGuard]:
    """Return the guards around a view function, or one that `as_view` made, outermost first."""
    return (guard for guard, _ in guards_and_subjects(view, method))


def guards_and_subjects(view: object, method: str) -> Iterator[tuple[ViewGuard, object]]:
    """Return the guards around a view, outermost first, and the function that each is put around.

    The function is None for a guard around a class as a whole.
    """
    view_class = getattr(view, "view_class", None)
    in_class = view_class is None
    for layer in wrapped_by(view, method):
        if (guard := guard_at(layer)) is not None:
            yield guard, list(wrapped_by(layer))[-1] if in_class else None
        elif inspect.isclass(layer):
            in_class = True
            # Flask-RESTX and Flask-RESTful wrap a method with these at each request.
            decorators = getattr(layer, "method_decorators", ())
            if isinstance(decorators, Mapping):  # by method, which only Flask-RESTful allows
                decorators = decorators.get(method.lower(), ())
            yield from ((each.guard, None) for each in decorators if isinstance(each, Decorator))


def wrapped_by(view: object, method: str | None = None) -> Iterator[object]:
    """Return a view and all that it wraps; with a method, also that method of its class."""
    view_class = getattr(view, "view_class", None)
    while view is not None:
        yield view
        view = getattr(view, "__wrapped__", None)
    if method is not None and inspect.isclass(view_class):
        yield view_class
        for name in ("dispatch_request", method.lower()):
            yield from wrapped_by(getattr(view_class, name, None))


def guard_at(layer: object) -> ViewGuard | None:
    wrapper, guard = getattr(layer, _GUARD, (None, None))
    return guard if wrapper is layer else None


def has_own_mark(view: object, mark: str) -> bool:
    """Whether a mark is the view's own, and not a copy by `functools.wraps`."""
    return getattr(view, mark, None) is view
