"""Prometheus metrics of the guards, the store and the keeper.

Needs the extra `prometheus`. No label ever holds a value that a client has sent: endpoints, modes,
error slugs and names of operations are all finite.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from . import signals
from .engine.engine import engine_of
from .engine.store_calls import Instrument
from .errors import ConfigurationError
from .stores.process import call_in_children

try:
    from prometheus_client import REGISTRY, Counter, Gauge, Histogram
except ImportError as _error:
    raise ImportError(
        'flask_idempotence.metrics needs an extra: pip install "flask-idempotence[prometheus]"'
    ) from _error

if TYPE_CHECKING:
    from flask import Flask
    from prometheus_client import CollectorRegistry

_STORE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_KEEPER_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_PLACE = ("mode", "endpoint")


class _Collectors:
    """The metrics of one registry, which any number of applications may share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"idempotence_{name}", text, labels, registry=registry)

        self.requests = counter("requests", "Requests at a guard, by outcome.", *_PLACE, "outcome")
        self.settlements = counter("settlements", "Settled claims.", *_PLACE, "outcome")
        self.leases_lost = counter(
            "leases_lost", "Claims that ended before they were settled.", *_PLACE, "during"
        )
        self.store_failures = counter(
            "store_failures", "Operations that the store did not answer.", "operation"
        )
        self.tokens = counter("tokens", "One-time tokens, issued and spent.", "outcome")
        self.store_seconds = Histogram(
            "idempotence_store_seconds",
            "Duration of the store's operations, answered or not.",
            ("operation",),
            registry=registry,
            buckets=_STORE_BUCKETS,
        )
        self.keeper_lag = Histogram(
            "idempotence_keeper_lag_seconds",
            "Delay between the time when a renewal was due and its beginning.",
            registry=registry,
            buckets=_KEEPER_BUCKETS,
        )
        self._pending = Gauge(
            "idempotence_settlements_pending",
            "Settlements that wait for the store to answer.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._forget()
        call_in_children(self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[int, int] = {}  # pending settlements of this process, by application

    def set_pending(self, app_id: int, count: int) -> None:
        """Set the number of pending settlements of one application in this process."""
        with self._lock:
            self._counts[app_id] = count
            self._pending.set(sum(self._counts.values()))


_collectors: WeakKeyDictionary[CollectorRegistry, _Collectors] = WeakKeyDictionary()
_collectors_lock = threading.Lock()


def _collectors_in(registry: CollectorRegistry) -> _Collectors:
    with _collectors_lock:
        if registry not in _collectors:
            _collectors[registry] = _Collectors(registry)
        return _collectors[registry]


class Metrics:
    """Count and time the work of an application's guards, for Prometheus.

    Register it after `Idempotence`. How the metrics are exposed is the application's choice:
    `prometheus_client` has the means, for several worker processes, too.

    Args:
        app: an application; or call `init_app` in a factory.
        registry: where the metrics are registered. Any number of applications may share one.

    Raises:
        ConfigurationError: `Idempotence` is not registered on the application, or its guards are
            counted in this registry already.
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
            ConfigurationError: as for the class.
        """
        if "idempotence" not in app.extensions:
            raise ConfigurationError(
                f"Metrics(app) needs Idempotence, which is not registered on the application "
                f"{app.name!r} yet: call Idempotence(app) first."
            )
        counting: list[_Collectors] = app.extensions.setdefault("idempotence_metrics", [])
        if self._collectors in counting:
            raise ConfigurationError(
                f"The metrics of the application {app.name!r} are counted already: everything "
                "would count twice. Register Metrics once for each registry."
            )
        counting.append(self._collectors)
        _count_signals(self._collectors, app)
        engine_of(app).policy.instrumentation.add(_Measurements(self._collectors))


def _count_signals(collectors: _Collectors, app: Flask) -> None:
    requests, settlements, tokens = collectors.requests, collectors.settlements, collectors.tokens
    for signal, counter, labels in (
        (signals.claimed, requests, lambda sent: (*_place(sent), "claimed")),
        (signals.replayed, requests, lambda sent: (*_place(sent), "replayed")),
        (signals.rejected, requests, lambda sent: (*_place(sent), sent["error"].slug)),
        (signals.completed, settlements, lambda sent: (*_place(sent), "completed")),
        (signals.released, settlements, lambda sent: (*_place(sent), "released")),
        (signals.lease_lost, collectors.leases_lost, lambda sent: (*_place(sent), sent["during"])),
        (signals.store_failed, collectors.store_failures, lambda sent: (sent["operation"],)),
        # Without the purpose, which the query of the token URL makes up.
        (signals.token_issued, tokens, lambda _: ("issued",)),
        (signals.token_spent, tokens, lambda _: ("spent",)),
    ):
        signal.connect(_receiver(counter, labels), app, weak=False)


def _place(sent: dict[str, Any]) -> tuple[str, str]:
    return sent["mode"], sent["endpoint"] or ""


def _receiver(
    counter: Counter, labels: Callable[[dict[str, Any]], tuple[str, ...]]
) -> Callable[..., None]:
    def receive(_: Flask, /, **arguments: object) -> None:
        counter.labels(*labels(arguments)).inc()

    return receive


class _Measurements(Instrument):
    """The measurements of one application."""

    def __init__(self, collectors: _Collectors) -> None:
        self._collectors = collectors

    def store_call(self, operation: str, seconds: float) -> None:
        self._collectors.store_seconds.labels(operation).observe(seconds)

    def renewal_delay(self, seconds: float) -> None:
        self._collectors.keeper_lag.observe(seconds)

    def retry_queue_length(self, count: int) -> None:
        self._collectors.set_pending(id(self), count)
