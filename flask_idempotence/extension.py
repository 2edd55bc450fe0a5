"""The extension: the only place that registers anything on an application."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from flask import Flask, Request, current_app, has_request_context, request
from flask.signals import got_request_exception, request_finished, request_started

from .cli import tools
from .config.runtime import Callbacks, FailedPredicate, IdentityLoader, Switches, read_config
from .config.settings import SETTINGS, Config
from .engine import tokens
from .engine.engine import Engine, engine_of, finish_request, receive_exception, tear_down_request
from .engine.guard import Services
from .engine.state import begin_request
from .errors import ConfigurationError
from .exactly_once import listen_to_sessions
from .guards.arguments import function as checked_function
from .guards.blocks import Id, Lock
from .guards.once import NO_ID, Once, Step, forget
from .guards.placement import Fault, close_endpoint, faults_of, place_guards
from .guards.token import TokenGuard
from .request.fingerprint import Keyring
from .request.identity import Identities
from .request.proxies import actual
from .request.tokens import Tokens
from .request.warnings import NearMisses
from .response.records import Records
from .response.refusals import register_with_apiflask
from .stores import Store, open_store
from .web.routes import make_blueprint, token_url_faults
from .web.templating import FUNCTIONS

if TYPE_CHECKING:
    from .exactly_once import Within

Loader = TypeVar("Loader", bound=IdentityLoader)


class Idempotence:
    """Flask extension that makes side effects happen once.

    Settings, store and keeper belong to each application; this object holds only the functions
    that are registered with its decorators, and may serve any number of applications.

    Args:
        app: an application to register on at once; or call `init_app` in a factory.
        store: a store of your own, instead of the one at `IDEMPOTENCE_STORAGE_URI`.

    Raises:
        ConfigurationError: a setting is wrong, or the extension is registered already.
    """

    def __init__(self, app: Flask | None = None, *, store: Store | None = None) -> None:
        self._hooks = Callbacks()
        if app is not None:
            self.init_app(app, store=store)

    def init_app(self, app: Flask, *, store: Store | None = None) -> None:
        """Register on an application. Its settings are read now, except for the switches.

        Args:
            app: the application.
            store: a store of your own, instead of the one at `IDEMPOTENCE_STORAGE_URI`.

        Raises:
            ConfigurationError: a setting is wrong, the extension is registered already, or an
                existing view has a guard that guards nothing.
        """
        if not isinstance(app, Flask):
            raise ConfigurationError(
                f"Idempotence(app) takes the Flask application, not {_kind_of(app)}."
            )
        if store is not None and not isinstance(store, Store):
            raise ConfigurationError(
                f"Idempotence(app, store=...) takes a store, not {_kind_of(store)}: such as "
                "RedisStore(client). A URI goes to IDEMPOTENCE_STORAGE_URI."
            )
        if "idempotence" in app.extensions:
            raise ConfigurationError(
                f"Flask-Idempotence is already registered on the application {app.name!r}. Call "
                "Idempotence(app) or idempotence.init_app(app) once, not both."
            )
        config = read_config(app.config)
        _refuse(faults_of(app, config))
        if store is None:
            store = open_store(config.storage_uri, config.storage_options)
        listen_to_sessions()
        state = State(app, config, store, self._hooks)
        app.extensions["idempotence"] = state
        app.register_blueprint(make_blueprint(app, config.token_url))
        _refuse(token_url_faults(app))
        app.jinja_env.globals.update(FUNCTIONS)
        app.cli.add_command(tools)
        app.teardown_request(tear_down_request)
        request_started.connect(state.check_once, app)
        request_started.connect(begin_request, app)
        got_request_exception.connect(receive_exception, app)
        request_finished.connect(finish_request, app)

    def identity_loader(self, function: Loader) -> Loader:
        """Register the function that identifies the sender of a request, before all other sources.

        Args:
            function: called without arguments in a request; returns the user's id (a text, an
                integer, a UUID or bytes), a tuple or list of these (of a tenant and a user, say),
                or None to use the next source. In a tuple with a None, the rest counts beside the
                next sources. The id is the same in all requests of a user. Anything else it
                returns, such as the user, makes the request raise a `ConfigurationError`.

        Raises:
            ConfigurationError: it is no function, or an async one.
        """
        self._hooks.load_identity = checked_function("identity_loader(...)", function)
        return function

    def result_failed(self, function: FailedPredicate) -> FailedPredicate:
        """Register the function that decides whether a response is a failed result.

        It replaces the built-in rule in every mode: after a failed result the lock is released, a
        token with `restore_on_failure` is put back, and a key is released (at-least-once).

        Args:
            function: takes the response of the view, before any `after_request` function, and
                returns whether the result failed.

        Raises:
            ConfigurationError: it is no function, or an async one.
        """
        self._hooks.result_failed = checked_function("result_failed(...)", function)
        return function

    def once(
        self,
        scope: str,
        id: Id = NO_ID,
        *,
        key: Callable[..., Id] | None = None,
        ttl: float | timedelta = 86400,
        wait: float | timedelta | None = None,
        within: Within | None = None,
    ) -> Once:
        """Run a named operation once, in a request or outside: a message, a job, a command.

        A context manager, whose block reads `.first`; or a decorator. It needs an application
        context when it begins. An exception releases the operation, so that the message can be
        delivered again. After a `BaseException`, or if the process dies, it can run again when its
        lease has ended.

        Args:
            scope: the kind of operation; 1 to 64 letters, digits, `_`, `.` and `-`. It is shown
                in the store, in log lines and by signals.
            id: its id: a text, an integer, a UUID, or a tuple of these.
            key: for a decorator: called with the arguments of the function, returns the id.
            ttl: seconds, or a `timedelta`, for which the operation is remembered as done.
            wait: seconds, or a `timedelta`, to wait for an operation that is running elsewhere,
                until it is done or this block is the first. None: no wait. It occupies the thread.
            within: the SQLAlchemy session in which it writes, as for `idempotent`: the end of the
                block commits, so that the operation happens exactly once.

        Raises:
            ConfigurationError: an argument of the wrong kind.
            TypeError: the id is not a text, an integer, a UUID or a tuple of these.
            Running: when it begins, the same operation is running elsewhere, still after `wait`.
            StoreUnavailable: when it begins, the store does not answer, and the policy is to
                reject.
        """
        return Once(scope, id, key=key, ttl=ttl, wait=wait, within=within)

    def step(self, name: str, id: Id | None = None, *, within: Within | None = None) -> Step:
        """Run a part of an operation once, however often the operation runs.

        A context manager, in a view behind a key or in a block of `once`. The view or block that
        runs again, after a failure or a crash, gets the results of its finished steps. An
        exception out of the step is not remembered. A step of an operation that runs unguarded,
        such as a request without a key, runs each time.

        Args:
            name: the step's name in its operation; 1 to 64 letters, digits, `_`, `.` and `-`. It
                is shown in the store, in log lines and by signals.
            id: tells the rounds of a loop apart: a text, an integer, a UUID, or a tuple of these.
            within: the SQLAlchemy session in which the step writes, as for `once`: the end of the
                block commits its writes and its record together.

        Returns:
            The step, with `first`, `result` and `key`: a text that is the same each time the
            operation runs, to hand on as an idempotency key to a provider.

        Raises:
            ConfigurationError: an argument of the wrong kind; and when it begins, no operation is
                around it, the operation is at-most-once or `within=` a session, or has had this
                step already.
            TypeError: the id is not a text, an integer, a UUID or a tuple of these.
            LeaseLost: when it begins, the claim of the operation has ended.
            Running: when it begins, another attempt holds the step.
            KeyReused: when it begins, the step is finished for another request with the same key.
            StoreUnavailable: when it begins, the store does not answer, and the policy is to
                reject.
        """
        return Step(name, id, within=within)

    def forget(self, scope: str, id: Id) -> bool:
        """Forget a finished operation of `once` and its steps, so that it can run again.

        It looks for the steps among all steps in the store.

        Args:
            scope: its scope.
            id: its id.

        Returns:
            True if this call has removed the record; of several callers, one gets True. False if
            there is no record.

        Raises:
            ConfigurationError: the scope has another form, or the store is no `InspectableStore`.
            TypeError: the id is not a text, an integer, a UUID or a tuple of these.
            Running: the operation, or a step of it, is running. Its owner keeps it.
            StoreUnavailable: the store does not answer.
        """
        return forget(actual(current_app), scope, id)

    def lock(
        self,
        name: Id,
        *,
        lease: float | timedelta | None = None,
        wait: float | timedelta | None = None,
    ) -> Lock:
        """Run one block of code at a time under a name, in a request or outside.

        A context manager, or a decorator. It needs an application context when it begins. The lock
        is released when its block ends, by its owner only. The keeper renews the lease while the
        block runs; before a step that must not run beside another holder's, call
        `current_guard.ensure_held()`.

        Args:
            name: a text, an integer, a UUID, or a tuple of these.
            lease: seconds, or a `timedelta`, after which the lock of a process that has died is
                free; 0.5 or more, and at most `IDEMPOTENCE_MAX_HOLD`. None: `IDEMPOTENCE_LEASE`.
            wait: seconds, or a `timedelta`, to wait for the lock. None: no wait. It occupies the
                thread.

        Raises:
            ConfigurationError: an argument of the wrong kind.
            TypeError: the name is not a text, an integer, a UUID or a tuple of these.
            Running: when it begins, the lock is held elsewhere, still after `wait`.
            StoreUnavailable: when it begins, the store does not answer, and the policy is to
                reject.
        """
        return Lock(name, lease=lease, wait=wait)

    def issue_token(self, purpose: str | None = None) -> str:
        """Return a new one-time token; in a request it is bound to the signed-in user, if any.

        It is good for `IDEMPOTENCE_TOKEN_TTL` seconds.

        Args:
            purpose: 1 to 64 letters, digits, `_`, `.` and `-`; spending the token needs the same.

        Raises:
            ValueError: the purpose has another form.
            StoreUnavailable: the store does not answer, and the policy is to reject.
        """
        return tokens.issue_token(engine_of(actual(current_app)), _current_request(), purpose)

    def redeem_token(self, token: str, purpose: str | None = None) -> None:
        """Spend a one-time token in code, without the decorator; return if it is valid.

        Args:
            token: a token of `issue_token` or the token URL.
            purpose: the purpose for which it must have been issued; None for no purpose.

        Raises:
            TokenError: the token is not valid; each reason has a subclass.
            StoreUnavailable: the store does not answer, and the policy is to reject.
        """
        engine, current = engine_of(actual(current_app)), _current_request()
        guard = TokenGuard().bind(engine.services, None, purpose=purpose)
        tokens.redeem_token(engine, guard, current, lambda: guard.operation_of(token, current))


class State:
    """The state of one application, `app.extensions["idempotence"]`."""

    def __init__(self, app: Flask, config: Config, store: Store, hooks: Callbacks) -> None:
        self.config = config
        self.store = store
        self.given = frozenset(SETTINGS).intersection(app.config)  # before defaults are filled in
        identities, keyring = Identities(config, hooks), Keyring(config)
        services = Services(
            app,
            config,
            hooks,
            identities,
            keyring,
            NearMisses(config),
            Records(config),
            Tokens(config, identities, keyring),
        )
        self.engine = Engine(services, store, Switches(app, config))
        self._lock = threading.Lock()
        self._is_checked = False

    def check_once(self, app: Flask, **_: object) -> None:
        """Check the complete application at its first request; close faulty endpoints."""
        with self._lock:
            if self._is_checked:
                return
            faults = [*faults_of(app, self.config, self.store), *token_url_faults(app)]
            faults += place_guards(app, self.config)
            for fault in {fault.endpoint: fault for fault in reversed(faults)}.values():
                close_endpoint(app, fault)
            register_with_apiflask(app)
            self.engine.switches.report_foreign(app)
            # The function registered last is called first, those of blueprints before the
            # application's; and none is called after one that has raised.
            for functions in app.teardown_request_funcs.values():
                if tear_down_request in functions:
                    functions.remove(tear_down_request)
                functions.append(tear_down_request)
            self._is_checked = True
            request_started.disconnect(self.check_once)


def _refuse(faults: Iterable[Fault]) -> None:
    if texts := dict.fromkeys(fault.text for fault in faults):
        raise ConfigurationError(" ".join(texts))


def _kind_of(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _current_request() -> Request | None:
    return actual(request) if has_request_context() else None
