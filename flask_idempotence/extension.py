"""The extension: the only place that registers anything on an application."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from flask import (
    Flask,
    current_app,
    got_request_exception,
    has_request_context,
    request,
    request_finished,
    request_started,
)
from flask.globals import request_ctx

from .cli import tools
from .config.callbacks import Callbacks, FailedPredicate, IdentityLoader
from .config.reading import read_config
from .config.settings import SETTINGS, Config
from .config.switches import Switches
from .engine.claim import Attempt
from .engine.engine import Engine, engine_of
from .engine.tokens import Tokens
from .errors import ConfigurationError
from .guards.checks import faults_of, faults_when_finished
from .guards.faults import Fault, close_endpoint
from .guards.names import NO_ID, Id
from .guards.once import Once
from .guards.whole_app import guard_all
from .request.hashing import Keyring
from .request.identity import Identities
from .request.proxies import actual
from .response.refusals import Refusal, TokenInvalid
from .stores import Store, open_store
from .web.routes import make_blueprint, token_url_faults
from .web.templating import FUNCTIONS, keep_tokens_out_of_caches

if TYPE_CHECKING:
    from flask import Response
    from sqlalchemy.orm import Session, scoped_session


class Idempotence:
    """Makes side effects happen once.

    Settings, store and keeper belong to each application; this object holds only what is told to
    it through its decorators, and may serve any number of applications.

    Args:
        app: an application to register on at once; or call `init_app` in a factory.
        store: a store of your own, instead of the one that `IDEMPOTENCE_STORAGE_URI` names.

    Raises:
        ConfigurationError: a setting is wrong, or the extension is registered already.
    """

    def __init__(self, app: Flask | None = None, *, store: Store | None = None) -> None:
        self._hooks = Callbacks()
        if app is not None:
            self.init_app(app, store=store)

    def init_app(self, app: Flask, *, store: Store | None = None) -> None:
        """Register on an application, whose settings are read now, all but the toggles.

        Args:
            app: the application.
            store: a store of your own, instead of the one that `IDEMPOTENCE_STORAGE_URI` names.

        Raises:
            ConfigurationError: a setting is wrong, the extension is registered already, or a view
                that is there already has a guard that guards nothing.
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
        state = State(app, config, store, self._hooks)
        app.extensions["idempotence"] = state
        app.register_blueprint(make_blueprint(app, config.token_url))
        _refuse(token_url_faults(app))
        app.jinja_env.globals.update(FUNCTIONS)
        # The function registered first is called last: what an application's own hooks say about
        # caching must not be the last word.
        app.after_request_funcs.setdefault(None, []).insert(0, keep_tokens_out_of_caches)
        app.cli.add_command(tools)
        app.teardown_request(state.tear_down)
        request_started.connect(state.check_once, app)
        got_request_exception.connect(state.note_exception, app)
        request_finished.connect(state.finish, app)

    def identity_loader(self, function: IdentityLoader) -> IdentityLoader:
        """Register the application's own source of identities, asked before all others.

        Args:
            function: called without arguments in a request; returns a string that is the same
                whenever the same user asks, or None for "ask the next source".
        """
        self._hooks.load_identity = function
        return function

    def result_failed(self, function: FailedPredicate) -> FailedPredicate:
        """Register the predicate of failed results, in place of the built-in one.

        It decides in every mode: the lock is released, a token with `restore_on_failure` is put
        back, a key is free again (at-least-once).

        Args:
            function: takes the response of the view, before any `after_request` function, and
                returns whether the result failed.
        """
        self._hooks.result_failed = function
        return function

    def once(
        self,
        scope: str,
        id: Id = NO_ID,  # noqa: A002 - the word for it
        *,
        key: Callable[..., Id] | None = None,
        ttl: float | timedelta = 86400,
        within: Session | scoped_session[Any] | Callable[[], Session] | None = None,
    ) -> Once:
        """Carry an operation out once by its name, in a request or outside: a message, a job.

        A context manager, whose block looks at `.first`; or a decorator. An application context
        is needed when it begins. An exception gives the operation free, so that the message may
        come back; a process that dies, or is ended by a `BaseException`, when its lease ends.

        Args:
            scope: what kind of operation; 1 to 64 letters, digits, `_`, `.` and `-`. It is shown
                in the store, in log lines and by signals.
            id: which one: a text, an integer, a UUID, or a tuple of these.
            key: for a decorator: is called with the arguments of the function and returns the id.
            ttl: seconds, or a `timedelta`, for which it is remembered that the operation is done.
            within: the SQLAlchemy session in which it writes, as of `idempotent`: the end of the
                block commits, and it happens exactly once.

        Raises:
            ConfigurationError: an argument of the wrong kind.
            Running: when it begins, another one is at the same operation.
            StoreUnavailable: when it begins, the store does not answer, and the policy is to
                refuse.
        """
        return Once(scope, id, key=key, ttl=ttl, within=within)

    def issue_token(self, purpose: str | None = None) -> str:
        """Issue a one-time token; in a request it is bound to the signed-in user, if any.

        Args:
            purpose: 1 to 64 letters, digits, `_`, `.` and `-`; it must be given again to spend it.

        Raises:
            ValueError: the purpose has another form.
            StoreUnavailable: the store does not answer, and the policy is to refuse.
        """
        app = actual(current_app)
        return engine_of(app).tokens.issue(app, _current_request(), purpose)

    def redeem_token(self, token: str, purpose: str | None = None) -> None:
        """Spend a token by hand; returns if it was good.

        Args:
            token: as `issue_token` or the token URL gave it.
            purpose: what it must have been issued for.

        Raises:
            TokenError: one of its subclasses says which check failed.
            StoreUnavailable: the store does not answer, and the policy is to refuse.
        """
        app, asked = actual(current_app), _current_request()
        engine = engine_of(app)
        attempt = Attempt(app, "token", asked.endpoint if asked is not None else None)
        try:
            if not isinstance(token, str):
                raise TokenInvalid().because("it is not a text")
            engine.tokens.spend(attempt, asked, engine.tokens.read(attempt, token, purpose))
        except Refusal as refusal:
            engine.announce(refusal, attempt)
            raise


class State:
    """What belongs to one application; `app.extensions["idempotence"]`.

    Attributes:
        config: its settings.
        store: where its claims and tokens are kept.
        engine: carries its guarded requests through their steps.
        given: the names of the settings that the application has set.
    """

    def __init__(self, app: Flask, config: Config, store: Store, hooks: Callbacks) -> None:
        self.config = config
        self.store = store
        self.given = frozenset(SETTINGS).intersection(app.config)  # before defaults are filled in
        self.engine = Engine(
            config,
            store,
            hooks=hooks,
            identities=Identities(config, hooks),
            keyring=Keyring(config.hash_key),
            switches=Switches(app, config),
        )
        self.engine.tokens = Tokens(self.engine)
        self._lock = threading.Lock()
        self._is_checked = False

    def tear_down(self, error: BaseException | None) -> None:
        """Settle what no response has settled."""
        self.engine.settling.tear_down(actual(request_ctx), error)

    def finish(self, app: Flask, response: Response, **_: Any) -> None:
        """Settle by the response that is sent."""
        del app
        self.engine.settling.finish(actual(request_ctx), response)

    def note_exception(self, app: Flask, **_: Any) -> None:
        """Note an exception that nobody handled, such as that of a view that returned None."""
        del app
        if has_request_context():  # an application may send the signal by itself
            self.engine.settling.raised(actual(request_ctx))

    def check_once(self, app: Flask, **_: Any) -> None:
        """Check the finished application when its first request comes; close faulty endpoints."""
        with self._lock:
            if self._is_checked:
                return
            faults = [*faults_when_finished(app, self.config), *token_url_faults(app)]
            if self.config.key_all_routes:
                guard_all(app, self.config.key_methods)
            for fault in {fault.endpoint: fault for fault in reversed(faults)}.values():
                close_endpoint(app, fault)
            self.engine.switches.report_foreign(app)
            self._tear_down_first(app)
            self._is_checked = True
            request_started.disconnect(self.check_once)

    def _tear_down_first(self, app: Flask) -> None:
        # The function registered last is called first, and one that raises is the last called:
        # an application's must not keep ours from running.
        # Those of blueprints run before the application's.
        for functions in app.teardown_request_funcs.values():
            if self.tear_down in functions:
                functions.remove(self.tear_down)
            functions.append(self.tear_down)


def _refuse(faults: Iterable[Fault]) -> None:
    if texts := dict.fromkeys(fault.text for fault in faults):
        raise ConfigurationError(" ".join(texts))


def _kind_of(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _current_request() -> Any:
    return actual(request) if has_request_context() else None
