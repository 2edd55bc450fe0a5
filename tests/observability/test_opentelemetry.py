"""Spans and metrics of OpenTelemetry: exact, children of the request's span, without a secret."""

import contextvars
import re
import threading
from functools import partial

import pytest
from flask import current_app
from helpers.apps import add_views, bare_app, make_app
from observability.test_metrics import figures, of, pay
from opentelemetry import trace
from opentelemetry.instrumentation.flask import FlaskInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from flask_idempotence import ConfigurationError, MemoryStore, StoreError, idempotent
from flask_idempotence.metrics import Metrics
from flask_idempotence.opentelemetry import OpenTelemetry


class Telemetry:
    """A tracer and a meter that keep what they get, and an application that reports to them."""

    def __init__(self):
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])

    def report(self, app):
        OpenTelemetry(app, tracer_provider=self.tracers, meter_provider=self.meters)
        return app

    def watch(self, app):
        self.report(app)
        FlaskInstrumentor().instrument_app(
            app, tracer_provider=self.tracers, meter_provider=MeterProvider()
        )
        return app

    def spans(self):
        """Return the request's spans, each with the names of its children in their order."""
        spans = self.exporter.get_finished_spans()
        children = {}
        for span in spans:
            if span.parent is not None:
                children.setdefault(span.parent.span_id, []).append(span)
        roots = [span for span in spans if span.parent is None]
        return [(root, children.get(root.context.span_id, [])) for root in roots]

    def values(self):
        """Return all values but 0, and the counts of histograms, by name and attributes."""
        found = {}
        data = self.reader.get_metrics_data()
        for metric in data.resource_metrics[0].scope_metrics[0].metrics if data else ():
            for point in metric.data.data_points:
                value = point.value if hasattr(point, "value") else point.count
                if value:
                    found[metric.name, tuple(sorted(point.attributes.items()))] = value
        return found


@pytest.fixture
def telemetry():
    telemetry = Telemetry()
    yield telemetry
    telemetry.tracers.shutdown()
    telemetry.meters.shutdown()


def ours(span):
    return {
        name.removeprefix("idempotence."): value
        for name, value in span.attributes.items()
        if name.startswith("idempotence.")
    }


def test_the_span_of_a_request_says_what_the_guard_decided(telemetry):
    client = telemetry.watch(add_views(make_app())).test_client()
    pay(client, "1", "1", None)
    client.post("/orders/fail")
    place = {"mode": "key", "endpoint": "pay", "waited": 0.0}
    first, again, missing, failed = telemetry.spans()
    lease = {"lease": 30.0}
    assert ours(first[0]) == {**place, **lease, "outcome": "claimed", "replay": False}
    assert ours(again[0]) == {**place, "outcome": "replayed", "replay": True}
    refused = {"outcome": "rejected", "replay": False, "reason": "key-missing"}
    assert ours(missing[0]) == {**place, **refused}
    names = [[event.name for event in root.events] for root, _ in telemetry.spans()]
    assert names == [
        ["idempotence.claimed", "idempotence.completed"],
        ["idempotence.replayed"],
        ["idempotence.rejected"],
        ["idempotence.claimed", "idempotence.released"],
    ]
    assert [ours(event) for event in failed[0].events][1] == {"mode": "lock", "endpoint": "order"}


def test_the_keeper_has_no_span_where_threads_inherit_their_context(telemetry, monkeypatch):
    # As in free-threaded Python 3.14, and under opentelemetry-instrumentation-threading.
    start, renewed = threading.Thread.start, threading.Event()

    def start_in_context(thread):
        thread.run = partial(contextvars.copy_context().run, thread.run)
        start(thread)

    class Renewing(MemoryStore):
        def renew(self, renewals):
            outcomes = super().renew(renewals)
            renewed.set()
            return outcomes

    monkeypatch.setattr(threading.Thread, "start", start_in_context)
    app = make_app(store=Renewing(), IDEMPOTENCE_LEASE=0.5)
    view = idempotent()(lambda: str(renewed.wait(30)))
    app.add_url_rule("/slow", "slow", view, methods=["POST"])
    answer = telemetry.watch(app).test_client().post("/slow", headers={"Idempotency-Key": "1"})
    [(_, children)] = telemetry.spans()
    assert answer.text == "True"
    assert [child.name for child in children] == ["idempotence.claim", "idempotence.complete"]


def test_a_span_within_a_store_call_is_its_child(telemetry):
    class Traced(MemoryStore):
        def claim(self, *claim):
            with telemetry.tracers.get_tracer("redis").start_as_current_span("EVALSHA"):
                return super().claim(*claim)

    telemetry.watch(add_views(make_app(store=Traced()))).test_client().post("/orders/well")
    [inner, claim, root] = telemetry.exporter.get_finished_spans()
    assert (inner.name, claim.name) == ("EVALSHA", "idempotence.claim")
    assert inner.parent.span_id == claim.context.span_id
    assert claim.parent.span_id == root.context.span_id


def test_a_store_call_that_fails_is_an_error_of_its_span_without_its_text(telemetry):
    class Broken(MemoryStore):
        def claim(self, *claim):
            raise StoreError("secretmark.internal:6379 refused") from ConnectionRefusedError()

    client = telemetry.watch(add_views(make_app(store=Broken()))).test_client()
    assert client.post("/orders/well").status_code == 503
    [(root, [claim])] = telemetry.spans()
    assert claim.status.status_code is trace.StatusCode.ERROR
    assert claim.attributes["error.type"] == "ConnectionRefusedError"
    assert [event.name for event in root.events] == [
        "idempotence.store_failed",
        "idempotence.rejected",
    ]
    assert ours(root)["reason"] == "store-unavailable"
    assert "secretmark" not in claim.to_json() + root.to_json()


def test_the_metrics_are_those_of_prometheus(telemetry):
    app, registry = telemetry.report(add_views(make_app())), CollectorRegistry()
    Metrics(app, registry=registry)
    client = app.test_client()
    for outcome in ("well", "well", "fail", "lose"):
        client.post(f"/orders/{outcome}")
    pay(client, "1", "1", "2", None)
    client.get("/token")
    client.post("/checkout")
    prometheus = {
        (re.sub("_total$|_count$", "", name), labels): value
        for (name, labels), value in figures(registry).items()
        if name.endswith(("_total", "_count"))
    }
    assert telemetry.values() == prometheus
    assert len(prometheus) > 15
    [metrics] = telemetry.reader.get_metrics_data().resource_metrics[0].scope_metrics
    [seconds] = [each for each in metrics.metrics if each.name == "idempotence_store_seconds"]
    assert seconds.unit == "s"
    [bounds] = {point.explicit_bounds for point in seconds.data.data_points}
    buckets = of("store_seconds_bucket", registry, "le")
    assert {float(le) for (le,) in buckets} - {float("inf")} <= {*bounds}


def test_what_clients_send_is_in_no_span_and_no_metric(telemetry):
    client = telemetry.report(add_views(make_app())).test_client()
    with telemetry.tracers.get_tracer("test").start_as_current_span("no URL in it"):
        client.post("/orders/well?mark=secretmark", environ_base={"REMOTE_ADDR": "192.0.2.77"})
        for data in (None, None, {"a": "secretmark"}):
            client.post("/payments", data=data, headers={"Idempotency-Key": "secretmark"})
        client.get("/token?purpose=secretmark")
        client.post("/checkout", headers={"Idempotence-Token": "secretmark"})
    shown = "".join(span.to_json() for span in telemetry.exporter.get_finished_spans())
    shown += telemetry.reader.get_metrics_data().to_json()
    assert "idempotence.replay" in shown
    assert "secretmark" not in shown
    assert "192.0.2.77" not in shown


def test_the_current_application_is_reported_on_and_without_a_span_by_metrics_only(telemetry):
    app, registry = add_views(make_app()), CollectorRegistry()
    with app.app_context():
        Metrics(current_app, registry=registry)
        telemetry.report(current_app)
    app.test_client().post("/orders/well")
    assert telemetry.exporter.get_finished_spans() == ()
    assert sum(telemetry.values().values()) == 3  # a request, a claim's time, a settlement
    assert of("store_seconds_count", registry, "operation") == {("claim",): 1}


def test_it_comes_after_the_extension_and_once_for_each_meter(telemetry):
    with pytest.raises(ConfigurationError, match="call Idempotence"):
        telemetry.report(bare_app())
    app = telemetry.report(make_app())
    with pytest.raises(ConfigurationError, match="counted already"):
        telemetry.report(app)
    OpenTelemetry(app, meter_provider=MeterProvider())
