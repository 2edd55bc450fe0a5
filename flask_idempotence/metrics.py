"""Figures for Prometheus: what the guards did, and how the store and the keeper are doing.

The extra is needed: `pip install "flask-idempotence[prometheus]"`. No label ever holds what a
client has sent: endpoints, modes, error slugs and the names of operations are all finite.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from .engine.engine import engine_of
from .engine.instruments import Observer
from .errors import ConfigurationError
from .response.refusals import Refusal
from .signals import (
    claimed,
    completed,
    lease_lost,
    rejected,
    released,
    replayed,
    store_failed,
    token_issued,
    token_spent,
)
from .stores.process import call_in_children

try:
    from prometheus_client import REGISTRY, Counter, Gauge, Histogram
except ImportError as _error:
    raise ImportError(
        'flask_idempotence.metrics needs an extra: pip install "flask-idempotence[prometheus]"'
    ) from _error

if TYPE_CHECKING:
    from blinker import NamedSignal
    from flask import Flask
    from prometheus_client import CollectorRegistry

_STORE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_KEEPER_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PLACE = ("mode", "endpoint")


class _Collectors:
    """The figures of one registry, which may be about several applications."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, labels: tuple[str, ...]) -> Counter:
            return Counter(f"idempotence_{name}", text, labels, registry=registry)

        self.requests = counter(
            "requests", "Requests at a guard, by what became of them.", (*_PLACE, "outcome")
        )
        self.settlements = counter(
            "settlements", "Claims that were settled, by how.", (*_PLACE, "outcome")
        )
        self.leases_lost = counter(
            "leases_lost", "Claims that ended before they were settled.", (*_PLACE, "during")
        )
        self.store_failures = counter(
            "store_failures", "Operations that the store did not answer.", ("operation",)
        )
        self.tokens = counter("tokens", "One-time tokens, by what became of them.", ("outcome",))
        self.store_seconds = Histogram(
            "idempotence_store_seconds",
            "How long the store took, with an answer or without.",
            ("operation",),
            registry=registry,
            buckets=_STORE_BUCKETS,
        )
        self.keeper_lag = Histogram(
            "idempotence_keeper_lag_seconds",
            "How long after it was due a renewal was begun.",
            registry=registry,
            buckets=_KEEPER_BUCKETS,
        )
        self._pending = Gauge(
            "idempotence_settlements_pending",
            "Settlements that wait for the store to answer.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._lock = threading.Lock()
        self._counts: dict[int, int] = {}
        call_in_children(self._forget)

    def note_pending(self, of: int, count: int) -> None:
        """Note how many settlements of one application in this process wait."""
        with self._lock:
            self._counts[of] = count
            self._pending.set(sum(self._counts.values()))

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._counts.clear()  # those were the parent's


_known: weakref.WeakKeyDictionary[CollectorRegistry, _Collectors] = weakref.WeakKeyDictionary()
_knowing = threading.Lock()


def _collectors_in(registry: CollectorRegistry) -> _Collectors:
    with _knowing:
        if registry not in _known:
            _known[registry] = _Collectors(registry)
        return _known[registry]


class Metrics:
    """Counts and times what the guards of an application do, for Prometheus.

    Register it after `Idempotence`. How the figures are shown is the application's choice:
    `prometheus_client` has what is needed, for several worker processes, too.

    Args:
        app: an application; or call `init_app` in a factory.
        registry: where the figures are registered. Any number of applications may share one.

    Raises:
        ConfigurationError: `Idempotence` is not registered on the application, or these figures
            are counted already.
    """

    def __init__(
        self, app: Flask | None = None, *, registry: CollectorRegistry = REGISTRY
    ) -> None:
        self._collectors = _collectors_in(registry)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Begin to count on an application.

        Args:
            app: the application.

        Raises:
            ConfigurationError: `Idempotence` is not registered on it, or these figures are
                counted already.
        """
        if "idempotence" not in app.extensions:
            raise ConfigurationError(
                f"Metrics count what Idempotence does, and that is not registered on the "
                f"application {app.name!r} yet: call Idempotence(app) first."
            )
        counting: list[_Collectors] = app.extensions.setdefault("idempotence_metrics", [])
        if any(collectors is self._collectors for collectors in counting):
            raise ConfigurationError(
                f"The metrics of the application {app.name!r} are counted already: everything "
                "would count twice."
            )
        counting.append(self._collectors)
        counts = _Counts(self._collectors)
        counts.connect(app)
        engine_of(app).policy.observers.add(counts)


class _Counts(Observer):
    """Counts for one application."""

    def __init__(self, collectors: _Collectors) -> None:
        self._collectors = collectors

    def connect(self, app: Flask) -> None:
        """Listen to the application's signals."""
        for signal, receiver in (
            (claimed, self._request),
            (replayed, self._request),
            (rejected, self._refusal),
            (completed, self._settlement),
            (released, self._settlement),
            (lease_lost, self._lost),
            (store_failed, self._failure),
            (token_issued, self._token),
            (token_spent, self._token),
        ):
            receive = _with_name(signal, receiver)
            signal.connect(receive, app, weak=False)

    def _request(self, name: str, *, mode: str, endpoint: str | None, **_: Any) -> None:
        self._collectors.requests.labels(mode, endpoint or "", name).inc()

    def _refusal(
        self, _: str, *, mode: str, endpoint: str | None, error: Refusal, **__: Any
    ) -> None:
        self._collectors.requests.labels(mode, endpoint or "", error.slug).inc()

    def _settlement(self, name: str, *, mode: str, endpoint: str | None, **_: Any) -> None:
        self._collectors.settlements.labels(mode, endpoint or "", name).inc()

    def _lost(self, _: str, *, mode: str, endpoint: str | None, during: str, **__: Any) -> None:
        self._collectors.leases_lost.labels(mode, endpoint or "", during).inc()

    def _failure(self, _: str, *, operation: str, **__: Any) -> None:
        self._collectors.store_failures.labels(operation).inc()

    def _token(self, name: str, **_: Any) -> None:
        # Without its purpose, which the query of the token URL makes up.
        self._collectors.tokens.labels(name.removeprefix("token_")).inc()

    def store_asked(self, operation: str, seconds: float) -> None:
        """Note how long the store took."""
        self._collectors.store_seconds.labels(operation).observe(seconds)

    def keeper_late(self, seconds: float) -> None:
        """Note how late a renewal was begun."""
        self._collectors.keeper_lag.observe(seconds)

    def pending(self, count: int) -> None:
        """Note how many settlements wait."""
        self._collectors.note_pending(id(self), count)


def _with_name(signal: NamedSignal, receiver: Any) -> Any:
    def receive(_: Flask, /, **arguments: Any) -> None:
        receiver(signal.name, **arguments)

    return receive
