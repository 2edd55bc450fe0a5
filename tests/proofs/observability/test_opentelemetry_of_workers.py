"""OpenTelemetry from workers: Gunicorn's, forked first or preloaded, and Celery's."""

import json
from collections import Counter

import pytest
from helpers.cli_shell import APP
from helpers.servers.processes import Gunicorn, until
from proofs.observability.test_metrics_of_workers import URI, pay_until_two_have_served

PROVIDERS = """
import os
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

class Book(SpanExporter):
    def export(self, spans):
        with open(f"{os.environ['SPANS']}/{os.getpid()}.spans", "a") as book:
            book.writelines(span.to_json(indent=None) + "\\n" for span in spans)
        return SpanExportResult.SUCCESS

reader = InMemoryMetricReader()

def set_up():
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(Book()))
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(MeterProvider([reader]))

def tear_down():
    with open(f"{os.environ['SPANS']}/{os.getpid()}.metrics", "w") as book:
        book.write(reader.get_metrics_data().to_json())
"""

SERVED = f"""{APP}
from opentelemetry.instrumentation.flask import FlaskInstrumentor
from flask_idempotence.opentelemetry import OpenTelemetry

OpenTelemetry(app)
FlaskInstrumentor().instrument_app(app)
"""

TASKS = """
from celery.signals import worker_process_init, worker_process_shutdown
from opentelemetry import trace
from flask_idempotence.opentelemetry import OpenTelemetry
import providers

OpenTelemetry(flask_app)
worker_process_init.connect(lambda **_: providers.set_up(), weak=False)

@celery.task
def traced(order):
    with trace.get_tracer("worker").start_as_current_span("task"):
        with idempotence.once("mail", order) as job:
            if job.first:
                send(f"Mail {order}")
"""


class Traced(Gunicorn):
    """The application above, whose workers set up the SDK after the fork, as its makers advise."""

    SETTINGS = (
        Gunicorn.SETTINGS
        + """
import providers
def post_fork(server, worker):
    providers.set_up()
def worker_exit(server, worker):
    providers.tear_down()
"""
    )


def spans_in(directory):
    lines = [line for book in directory.glob("*.spans") for line in book.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def requests_in(directory):
    total = Counter()
    for book in directory.glob("*.metrics"):
        for scope in json.loads(book.read_text())["resource_metrics"][0]["scope_metrics"]:
            for metric in scope["metrics"]:
                if metric["name"] == "idempotence_requests":
                    for point in metric["data"]["data_points"]:
                        total[point["attributes"]["outcome"]] += point["value"]
    return total


@pytest.mark.servers
@pytest.mark.parametrize("extra", [(), ("--preload",)], ids=["forked first", "preloaded"])
def test_the_spans_and_figures_of_two_workers_add_up(tmp_path, redis_url, extra):
    (tmp_path / "traced.py").write_text(SERVED)
    (tmp_path / "providers.py").write_text(PROVIDERS)
    environment = {URI: redis_url, "SPANS": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    place = {"env": environment, "cwd": tmp_path}
    with Traced("traced:app", threads=8, extra=extra, **place) as server:
        keys = pay_until_two_have_served(server, copies=4)
    spans = spans_in(tmp_path)
    roots = {span["context"]["span_id"]: span for span in spans if span["parent_id"] is None}
    decided = [root["attributes"] for root in roots.values() if "POST" in root["name"]]
    outcomes = Counter(
        each.get("idempotence.reason", each["idempotence.outcome"]) for each in decided
    )
    assert outcomes["claimed"] == keys
    assert sum(outcomes.values()) == 4 * keys
    assert requests_in(tmp_path) == outcomes
    claims = [span for span in spans if span["name"] == "idempotence.claim"]
    assert len(claims) == 4 * keys
    assert {span["parent_id"] for span in claims} <= roots.keys()
    assert "secretmark" not in "".join(book.read_text() for book in tmp_path.glob("*.spans"))


@pytest.mark.queue
def test_a_task_of_celery_reports_to_its_span(tmp_path, redis_url):
    pytest.importorskip("rq")
    from helpers.brokers import CeleryBroker  # noqa: PLC0415 - it needs what only brokers need

    (tmp_path / "providers.py").write_text(PROVIDERS)
    broker = CeleryBroker(tmp_path, redis_url)
    broker.env["SPANS"] = str(tmp_path)
    with (tmp_path / "celery_shop.py").open("a") as code:
        code.write(TASKS)
    with broker.consumer() as worker:
        for times in (1, 2):
            broker.publish(7, task="traced")
            assert until(lambda n=times: broker.count("delivered", 7) == n, 60), worker.log
            assert until(lambda: not any(broker.waiting()), 60), worker.log
    tasks = [span for span in spans_in(tmp_path) if span["name"] == "task"]
    assert [span["attributes"]["idempotence.outcome"] for span in tasks] == ["claimed", "replayed"]
    calls = {span["context"]["span_id"]: [] for span in tasks}
    for span in spans_in(tmp_path):
        if span["parent_id"]:
            calls[span["parent_id"]].append(span["name"])
    assert list(calls.values()) == [
        ["idempotence.claim", "idempotence.complete"],
        ["idempotence.claim"],
    ]
