"""Spans, events and metrics of OpenTelemetry; needs the extra `opentelemetry`.

Only the API is imported: the SDK, its exporters and its sampling are the application's choice. No
attribute ever holds a value that a client has sent: no key, no address, no argument.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextvars import ContextVar, Token
from functools import partial
from typing import Any

from flask import Flask

from . import __version__, figures
from .engine.store_calls import StoreCall
from .figures import COUNTED, Figure, labels_of
from .request.proxies import unproxied
from .stores.process import call_in_children

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider
except ImportError as _error:
    raise ImportError(
        "flask_idempotence.opentelemetry needs an extra: "
        'pip install "flask-idempotence[opentelemetry]"'
    ) from _error

_SCOPE = "flask_idempotence"

# The store call that runs in this context has this span; none runs within another.
_calls: ContextVar[tuple[Span, Token[Context]] | None] = ContextVar("_calls", default=None)


class OpenTelemetry:
    """Report the work of an application's guards to OpenTelemetry.

    Register it after `Idempotence`. The current span of a guarded request, a task or a job gets
    attributes and an event for each decision, and a child span for each store call; the metrics
    have the names and the buckets of those for Prometheus.

    Args:
        app: an application; or call `init_app` in a factory.
        tracer_provider: makes the spans; None for the global provider.
        meter_provider: takes the metrics; None for the global provider.

    Raises:
        ConfigurationError: `Idempotence` is not registered on the application, or the application
            reports to this provider of metrics already.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._tracer_provider, self._meter_provider = tracer_provider, meter_provider
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Begin to report on an application.

        Args:
            app: the application.

        Raises:
            ConfigurationError: as for the class.
        """
        app = unproxied(app)
        meters = self._meter_provider or metrics.get_meter_provider()
        figures.register_once(app, "OpenTelemetry", meters)
        tracer = trace.get_tracer(_SCOPE, __version__, self._tracer_provider)
        meter = metrics.get_meter(_SCOPE, __version__, self._meter_provider)
        _Report(tracer, meter).connect(app)


class _Report(figures.Report):
    """The spans, the events and the metrics of one application.

    A request pays for each call of the SDK. So the counts are kept here, and the SDK reads them
    when it exports; nothing is computed for a span that is not recorded.
    """

    def __init__(self, tracer: Tracer, meter: metrics.Meter) -> None:
        self._tracer = tracer
        self._forget()
        call_in_children(self._forget)
        for figure in figures.COUNTERS:
            meter.create_observable_counter(
                figure.name, [partial(self._observe, figure)], description=figure.text
            )
        self._store_seconds, self._keeper_lag = (
            meter.create_histogram(
                figure.name,
                unit="s",
                description=figure.text,
                explicit_bucket_boundaries_advisory=figure.buckets,
            )
            for figure in (figures.STORE_SECONDS, figures.KEEPER_LAG)
        )
        pending = figures.SETTLEMENTS_PENDING
        meter.create_observable_up_down_counter(
            pending.name,
            [lambda _: [metrics.Observation(self._pending)]],
            description=pending.text,
        )

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._counts = {figure: Counter[tuple[str, ...]]() for figure in figures.COUNTERS}
        self._pending = 0  # settlements of this process

    def _observe(self, figure: Figure, _: object) -> list[metrics.Observation]:
        with self._lock:
            counts = list(self._counts[figure].items())
        return [
            metrics.Observation(count, dict(zip(figure.labels, labels, strict=True)))
            for labels, count in counts
        ]

    def receive(self, name: str, _app: Flask, /, **sent: Any) -> None:
        with self._lock:
            self._counts[COUNTED[name]][labels_of(name, sent)] += 1
        span = trace.get_current_span()
        if not span.is_recording():
            return
        attributes: dict[str, str | float | bool] = {
            "idempotence.mode": sent["mode"],
            "idempotence.endpoint": sent["endpoint"] or "",
        }
        for argument in figures.PASSED_ON.get(name, ()):
            attributes[f"idempotence.{argument}"] = sent[argument]
        if name == "rejected":
            attributes["idempotence.reason"] = sent["error"].slug
        span.add_event(f"idempotence.{name}", attributes)
        if name in ("claimed", "replayed", "rejected"):
            attributes["idempotence.outcome"] = name
            attributes["idempotence.replay"] = name == "replayed"
            span.set_attributes(attributes)

    def store_call_begins(self, operation: str) -> None:
        _calls.set(None)
        if trace.get_current_span().is_recording():
            span = self._tracer.start_span(f"idempotence.{operation}")
            _calls.set((span, context.attach(trace.set_span_in_context(span))))

    def store_call_ends(self, call: StoreCall) -> None:
        # The span is still open: an exemplar of the histogram leads to it.
        self._store_seconds.record(call.seconds, {"operation": call.operation})
        begun = _calls.get()
        if begun is not None:
            _calls.set(None)
            span, token = begun
            context.detach(token)
            if call.error is not None:
                # Its text may name servers: the class of the cause is enough.
                cause = call.error.__cause__ or call.error
                span.set_attribute("error.type", type(cause).__name__)
                span.set_status(trace.StatusCode.ERROR)
            span.end()

    def renewal_delay(self, seconds: float) -> None:
        self._keeper_lag.record(seconds)

    def retry_queue_length(self, count: int) -> None:
        self._pending = count
