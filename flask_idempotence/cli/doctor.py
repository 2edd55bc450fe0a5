"""`flask idempotence doctor`: check the deployment."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from itertools import product

import click
from flask import Flask, current_app

from ..engine.engine import engine_of
from ..errors import StoreError
from ..request.fingerprint import KEYSPACE
from ..stores.base import NO_FINGERPRINT, OWNER_BYTES, InspectableStore
from .causes import cause_of
from .checks import APP_CHECKS, STORE_CHECKS, DoctorContext, Finding
from .output import as_json, echo, in_terminal, print_json, print_table

CHECKS = STORE_CHECKS + APP_CHECKS

_PROBE_LEASE = 5.0
_COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}  # the worst first; ok is green


def collect(app: Flask, *, workers: int | None = None) -> DoctorContext:
    """Collect the facts that the checks read; an unreachable store is one of them."""
    context = DoctorContext(app, engine_of(app), workers)
    # Claiming and releasing a key needs every permission of a guard.
    prefix, store = context.engine.config.prefix, context.engine.store
    key = f"{prefix}:{KEYSPACE}:probe:doctor:{os.urandom(16).hex()}"
    owner = os.urandom(OWNER_BYTES)
    try:
        if isinstance(store, InspectableStore):
            # A server that takes no claim may still have facts that explain it.
            context.servers = store.facts()
            store.ping()  # connecting is not part of the measurement
        began = time.perf_counter()
        store.claim(key, owner, NO_FINGERPRINT, _PROBE_LEASE, 0)
        store.release(key, owner)
        context.probe_time = time.perf_counter() - began
    except StoreError as error:
        context.fault = cause_of(error)
        # One that refuses all commands tells nothing: that follows from the fault.
        context.servers = [each for each in context.servers if each.version is not None]
    return context


def examine(context: DoctorContext) -> Iterator[Finding]:
    for kind, checks in CHECKS:
        subjects = [each for each in (context, *context.servers) if isinstance(each, kind)]
        for check, subject in product(checks, subjects):
            found = check(subject)
            for finding in found if isinstance(found, list) else [found]:
                if finding is not None:
                    yield finding._replace(check=check.__name__.replace("_", " "))


@click.command("doctor")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    envvar="WEB_CONCURRENCY",
    show_envvar=True,
    help="Processes that serve the application.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings, too.")
@as_json
@click.pass_context
def doctor(ctx: click.Context, *, workers: int | None, strict: bool, as_json: bool) -> None:
    """Check the deployment: store, server, application.

    Every finding comes with its reason and its remedy:

    \b
    error    it does not work, or it will let repeats through
    warning  it may let repeats through
    note     you decide whether it is right
    ok       nothing to do

    Exit code: 0 for no errors; 1 for errors, with --strict also for warnings; 2 for a wrong
    command line.
    """  # noqa: D301 - click's mark for a block that is not to be wrapped
    app = engine_of(current_app).services.app
    findings = list(examine(collect(app, workers=workers)))
    severities = [finding.severity for finding in findings]
    counts = {f"{each}s": severities.count(each) for each in _COLOURS}
    rows = [finding._asdict() for finding in findings]
    if as_json:
        print_json({"findings": rows, **counts})
    elif in_terminal():
        _explain(findings, counts)
    else:
        print_table(rows)
    ctx.exit(int(counts["errors"] > 0 or (strict and counts["warnings"] > 0)))


def _explain(findings: Sequence[Finding], counts: dict[str, int]) -> None:
    print_table(
        [{"severity": f.severity, "check": f.check, "finding": f.finding} for f in findings],
        [_COLOURS.get(f.severity, "green") for f in findings],
    )
    width = min(99, shutil.get_terminal_size().columns)
    for severity, colour in _COLOURS.items():
        for f in (each for each in findings if each.severity == severity):
            echo("")
            echo(severity, f" {f.check}: {f.finding}", fg=colour, bold=True)
            echo(click.wrap_text(f"Why: {f.reason}", width, "  ", "       "))
            echo(click.wrap_text(f"Do: {f.remedy}", width, "  ", "       "))
    echo(f"\n{', '.join(f'{name}: {count}' for name, count in counts.items())}.")
