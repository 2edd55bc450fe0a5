#!/usr/bin/env python3
"""Measure what `OpenTelemetry(app)` adds to a guarded request, on Redis over TCP.

Every variant is a Flask application that OpenTelemetry's own instrumentation traces: each request
has a recorded span, which a thread exports in batches to nowhere. They differ in
`OpenTelemetry(app)` only. Sampled out, the spans of both are not recorded.

    uv run python benchmarks/service/telemetry.py
"""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tests")]
from helpers.servers.processes import RedisServer
from measuring.aims import Table, aim, rows_of
from measuring.command import finish, microseconds, parser_of, quiet, row_of
from measuring.timing import Variant, interleave, ratio
from modes import key_mode, lock_mode
from opentelemetry.instrumentation.flask import FlaskInstrumentor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from flask_idempotence.opentelemetry import OpenTelemetry

LIMIT = 1.10
"""A guarded request with telemetry, of one without, at most."""

CASES = {
    "lock": lock_mode.ours,
    "key, first request": key_mode.ours,
    "replay": key_mode.our_replay,
}


class Nowhere(SpanExporter):
    """Takes spans and drops them."""

    def export(self, _):
        return SpanExportResult.SUCCESS


def traced(variant: Variant, sampler: Sampler, *, reports: bool) -> Variant:
    """Trace a variant's application, with or without the extension's own report."""
    tracers = TracerProvider(sampler=sampler)
    tracers.add_span_processor(BatchSpanProcessor(Nowhere()))
    meters = MeterProvider([InMemoryMetricReader()])
    if reports:
        OpenTelemetry(variant.app, tracer_provider=tracers, meter_provider=meters)
        variant.name += ", reported"
    FlaskInstrumentor().instrument_app(variant.app, tracer_provider=tracers, meter_provider=meters)
    return variant


def main() -> int:
    """Run the benchmark from the command line; return the status to exit with."""
    arguments = parser_of(__doc__, requests=2000).parse_args()
    quiet()
    report = {}
    with RedisServer() as server:
        for sampling, sampler in (("recorded", ALWAYS_ON), ("sampled out", ALWAYS_OFF)):
            for name, build in CASES.items():
                ours, base = (
                    traced(build(server.url), sampler, reports=reports)
                    for reports in (True, False)
                )
                title = f"{name}, {sampling}"
                interleave(title, [ours, base], arguments.requests)
                times = {
                    each.name: row_of(microseconds(each.nanoseconds), 1) for each in (ours, base)
                }
                print(
                    title, *(f"{key}: {row['median']} us" for key, row in times.items()), sep="; "
                )
                spread = ratio(ours, base)
                report[title] = [
                    aim(f"{title} / without", spread.median, LIMIT) | {"spread": row_of(spread, 3)}
                ]
    return finish(report, arguments, {"what telemetry adds": Table(rows_of(report))})


if __name__ == "__main__":
    sys.exit(main())
