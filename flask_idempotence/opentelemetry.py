"""Spans, events and metrics of OpenTelemetry; needs the extra `opentelemetry`.

Only the API is imported: the SDK, its exporters and its sampling are the application's choice. No
attribute ever holds a value that a client has sent: no key, no address, no argument.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from . import __version__, signals
from .engine import figures
from .engine.engine import engine_of
from .engine.figures import Figure
from .engine.store_calls import Instrument, StoreCall
from .request.proxies import unproxied
from .stores.process import call_in_children

try:
    from opentelemetry import context, metrics, trace
except ImportError as _error:
    raise ImportError(
        "flask_idempotence.opentelemetry needs an extra: "
        'pip install "flask-idempotence[opentelemetry]"'
    ) from _error

if TYPE_CHECKING:
    from contextvars import Token

    from flask import Flask
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

_SCOPE = "flask_idempotence"

_calls: ContextVar[tuple[Span, Token[Context]] | None] = ContextVar("_calls", default=None)
"""The span of the store call that runs in this context; one store call never runs in another."""


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
        measurements = _Measurements(meter)
        figures.count_signals(app, measurements.count)
        for signal in signals.ALL_SIGNALS:
            signal.connect(_event_of(signal.name), app, weak=False)
        instrumentation = engine_of(app).policy.instrumentation
        instrumentation.add(measurements)
        instrumentation.add(_StoreSpans(tracer))


def _event_of(name: str) -> Any:
    def receive(_: Flask, /, **sent: Any) -> None:
        span = trace.get_current_span()
        if span.is_recording():
            attributes = _attributes(name, sent)
            span.add_event(f"idempotence.{name}", attributes)
            if name in _DECISIONS:
                span.set_attributes(attributes)

    return receive


_DECISIONS = ("claimed", "replayed", "rejected")


def _attributes(name: str, sent: dict[str, Any]) -> dict[str, str | float | bool]:
    attributes: dict[str, str | float | bool] = {
        "idempotence.mode": sent["mode"],
        "idempotence.endpoint": sent["endpoint"] or "",
    }
    if name in _DECISIONS:
        attributes["idempotence.outcome"] = name
        attributes["idempotence.replay"] = name == "replayed"
    if name == "rejected":
        attributes["idempotence.reason"] = sent["error"].slug
    for argument in figures.PASSED_ON:
        if argument in sent:
            attributes[f"idempotence.{argument}"] = sent[argument]
    return attributes


class _Measurements(Instrument):
    """The metrics of one application.

    The SDK takes some 7 microseconds to add to a counter, so the counts are kept here, and the SDK
    reads them when it exports.
    """

    def __init__(self, meter: metrics.Meter) -> None:
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
        self._counts: dict[Figure, Counter[tuple[str, ...]]] = {
            figure: Counter() for figure in figures.COUNTERS
        }
        self._pending = 0  # of this process

    def _observe(
        self, figure: Figure, _: metrics.CallbackOptions
    ) -> Iterator[metrics.Observation]:
        with self._lock:
            counts = list(self._counts[figure].items())
        for labels, count in counts:
            attributes = dict(zip(figure.labels, labels, strict=True))
            yield metrics.Observation(count, attributes)

    def count(self, figure: Figure, labels: tuple[str, ...]) -> None:
        """Add one to a counter."""
        with self._lock:
            self._counts[figure][labels] += 1

    def store_call_ends(self, call: StoreCall) -> None:
        self._store_seconds.record(call.seconds, {"operation": call.operation})

    def renewal_delay(self, seconds: float) -> None:
        self._keeper_lag.record(seconds)

    def retry_queue_length(self, count: int) -> None:
        self._pending = count


class _StoreSpans(Instrument):
    """A child span for each store call of a recorded span; the keeper's renewals have none."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def store_call_begins(self, operation: str) -> None:
        _calls.set(None)
        if trace.get_current_span().is_recording():
            span = self._tracer.start_span(f"idempotence.{operation}")
            _calls.set((span, context.attach(trace.set_span_in_context(span))))

    def store_call_ends(self, call: StoreCall) -> None:
        begun = _calls.get()
        if begun is None:
            return
        span, token = begun
        _calls.set(None)
        context.detach(token)
        if call.error is not None:
            # Without its text, which may name servers; of the cause only the class.
            cause = call.error.__cause__ or call.error
            span.set_attribute("error.type", type(cause).__name__)
            span.set_status(trace.StatusCode.ERROR)
        span.end()
