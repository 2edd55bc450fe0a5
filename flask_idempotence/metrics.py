"""Prometheus metrics of the guards, the store and the keeper; needs the extra `prometheus`."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from flask import Flask

from . import figures
from .engine.store_calls import StoreCall
from .figures import COUNTED, labels_of
from .request.proxies import unproxied
from .stores.process import call_in_children

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ImportError as _error:
    raise ImportError(
        'flask_idempotence.metrics needs an extra: pip install "flask-idempotence[prometheus]"'
    ) from _error


class _Collectors:
    """The metrics of one registry, which any number of applications may share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.counters = {
            figure: Counter(figure.name, figure.text, figure.labels, registry=registry)
            for figure in figures.COUNTERS
        }
        self.store_seconds, self.keeper_lag = (
            Histogram(each.name, each.text, each.labels, registry=registry, buckets=each.buckets)
            for each in (figures.STORE_SECONDS, figures.KEEPER_LAG)
        )
        pending = figures.SETTLEMENTS_PENDING
        self._pending = Gauge(
            pending.name, pending.text, registry=registry, multiprocess_mode="livesum"
        )
        self._forget()
        call_in_children(self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[int, int] = {}  # pending settlements of this process, by application

    def set_pending(self, app_id: int, count: int) -> None:
        with self._lock:
            self._counts[app_id] = count
            self._pending.set(sum(self._counts.values()))


_collectors: WeakKeyDictionary[CollectorRegistry, _Collectors] = WeakKeyDictionary()
_collectors_lock = threading.Lock()


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
        with _collectors_lock:
            if registry not in _collectors:
                _collectors[registry] = _Collectors(registry)
            self._collectors = _collectors[registry]
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Begin to count on an application.

        Args:
            app: the application.

        Raises:
            ConfigurationError: as for the class.
        """
        app = unproxied(app)
        figures.register_once(app, "Metrics", self._collectors)
        _Report(self._collectors).connect(app)


class _Report(figures.Report):
    def __init__(self, collectors: _Collectors) -> None:
        self._collectors = collectors

    def receive(self, name: str, _app: Flask, /, **sent: Any) -> None:
        self._collectors.counters[COUNTED[name]].labels(*labels_of(name, sent)).inc()

    def store_call_ends(self, call: StoreCall) -> None:
        self._collectors.store_seconds.labels(call.operation).observe(call.seconds)

    def renewal_delay(self, seconds: float) -> None:
        self._collectors.keeper_lag.observe(seconds)

    def retry_queue_length(self, count: int) -> None:
        self._collectors.set_pending(id(self), count)
