#!/usr/bin/env python3
"""Measure what `OpenTelemetry(app)` adds to a guarded request, on Redis over TCP.

Every variant is a Flask application that OpenTelemetry's own instrumentation traces: each request
has a recorded span, which a thread exports in batches to nowhere. They differ in
`OpenTelemetry(app)` only. Sampled out, the spans of both are not recorded.

The floor is the SDK's own price: a few lines around the two calls of the store, which make the
same child spans, events, attributes and measurements from constants, and nothing else.

    uv run python benchmarks/service/telemetry.py
"""

import sys
import time
from collections import Counter
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tests")]
from helpers.servers.processes import RedisServer
from measuring.aims import Table, aim, rows_of
from measuring.command import finish, microseconds, parser_of, quiet, row_of
from measuring.timing import Server, Variant, interleave, ratio
from modes import key_mode, lock_mode
from opentelemetry import context, trace
from opentelemetry.instrumentation.flask import FlaskInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from flask_idempotence.engine import figures
from flask_idempotence.opentelemetry import OpenTelemetry

LIMIT = 1.10
"""A guarded request with telemetry, of one without, at most."""

CASES = {
    "lock": lock_mode.ours,
    "key, first request": key_mode.ours,
    "replay": key_mode.our_replay,
}


LOCK = "ours: no_repeat_submit"


class Nowhere(SpanExporter):
    """Takes spans and drops them."""

    def export(self, _):
        return SpanExportResult.SUCCESS


def traced(
    variant: Variant, sampler: Sampler, *, reports: bool = False, by_hand: bool = False
) -> Variant:
    """Trace a variant's application, with or without the extension's own report."""
    tracers = TracerProvider(sampler=sampler)
    tracers.add_span_processor(BatchSpanProcessor(Nowhere()))
    meters = MeterProvider([InMemoryMetricReader()])
    if reports:
        OpenTelemetry(variant.app, tracer_provider=tracers, meter_provider=meters)
        variant.name += ", reported"
    if by_hand:
        report_by_hand(variant, tracers, meters)
    FlaskInstrumentor().instrument_app(variant.app, tracer_provider=tracers, meter_provider=meters)
    return variant


def report_by_hand(variant: Variant, tracers: TracerProvider, meters: MeterProvider) -> None:
    """Make the spans, events and measurements of a variant's requests from constants."""
    tracer, meter = tracers.get_tracer("by hand"), meters.get_meter("by hand")
    seconds = meter.create_histogram(
        "store_seconds", explicit_bucket_boundaries_advisory=figures.STORE_SECONDS.buckets
    )
    counts, store = Counter(), variant.app.extensions["idempotence"].store
    place = {"idempotence.mode": "key", "idempotence.endpoint": "create_order"}
    outcome = "replayed" if variant.replays else "claimed"
    facts = {**place, "idempotence.waited": 0.0}
    if not variant.replays:
        facts["idempotence.lease"] = 30.0
    decision = {
        **facts,
        "idempotence.outcome": outcome,
        "idempotence.replay": variant.replays,
    }

    def wrap(operation, events, decision):
        call, labels = getattr(store, operation), {"operation": operation}

        def timed(*arguments):
            parent = trace.get_current_span()
            if parent.is_recording():
                span = tracer.start_span("idempotence.operation")
                token = context.attach(trace.set_span_in_context(span))
                start = time.perf_counter()
                found = call(*arguments)
                elapsed = time.perf_counter() - start
                context.detach(token)
                span.end()
                for name, attributes in events:
                    parent.add_event(name, attributes)
                parent.set_attributes(decision)
            else:
                start = time.perf_counter()
                found = call(*arguments)
                elapsed = time.perf_counter() - start
            seconds.record(elapsed, labels)
            for name, _ in events:
                counts[name] += 1
            return found

        setattr(store, operation, timed)

    decided, completed = (f"idempotence.{outcome}", facts), ("idempotence.completed", place)
    if variant.name == LOCK:  # one call of the store, and two signals
        wrap("claim", [decided, completed], decision)
    else:
        wrap("claim", [decided], decision)
        wrap("complete", [completed], {})
    variant.name = "by hand"


def main() -> int:
    """Run the benchmark from the command line; return the status to exit with."""
    parser = parser_of(__doc__, requests=2000)
    parser.add_argument(
        "--cpu", action="store_true", help="CPU time of the thread: for a busy machine"
    )
    arguments = parser.parse_args()
    quiet()
    if arguments.cpu:
        Server.clock = staticmethod(time.thread_time_ns)
    report, costs = {}, []
    with RedisServer() as server:
        for sampling, sampler in (("recorded", ALWAYS_ON), ("sampled out", ALWAYS_OFF)):
            for name, build in CASES.items():
                ours = traced(build(server.url), sampler, reports=True)
                floor = traced(build(server.url), sampler, by_hand=True)
                base = traced(build(server.url), sampler)
                title = f"{name}, {sampling}"
                interleave(title, [ours, floor, base], arguments.requests)
                times = {
                    each.name: row_of(microseconds(each.nanoseconds), 1)
                    for each in (ours, floor, base)
                }
                print(
                    title, *(f"{key}: {row['median']} us" for key, row in times.items()), sep="; "
                )
                by_hand, over = ratio(floor, base), ratio(ours, floor)
                costs.append(
                    f"{title}: by hand / without {by_hand.median:.3f}, "
                    f"reported / by hand {over.median:.3f}"
                )
                spread = ratio(ours, base)
                report[title] = [
                    aim(f"{title} / without", spread.median, LIMIT)
                    | {"spread": row_of(spread, 3)}
                    | {"by hand / without": row_of(by_hand, 3), "/ by hand": row_of(over, 3)}
                ]
    print("\nthe SDK's own price", *costs, sep="\n  ")
    return finish(report, arguments, {"what telemetry adds": Table(rows_of(report))})


if __name__ == "__main__":
    sys.exit(main())
