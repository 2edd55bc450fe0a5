"""`flask idempotence doctor`: whether all is set up so that the guards can keep their word."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from flask import Flask

from ..errors import StoreError
from ..request.hashing import KEYSPACE
from ..stores.base import NO_FINGERPRINT, OWNER_BYTES
from .app_checks import APP_CHECKS
from .common import as_json, kind_of, the_app, tool
from .findings import Check, Finding, Patient, Severity
from .output import Coloured, in_terminal, print_json, styled, table
from .store_checks import STORE_CHECKS
from .surroundings import look_around

if TYPE_CHECKING:
    from ..extension import State

CHECKS: dict[str, Check] = {**STORE_CHECKS, **APP_CHECKS}
"""All checks by name, in their order."""

_PROBE_LEASE = 5.0

_COLOURS = {
    Severity.OK: "green",
    Severity.NOTE: "blue",
    Severity.WARNING: "yellow",
    Severity.ERROR: "red",
}


def admit(app: Flask, *, workers: int | None = None) -> Patient:
    """Gather what the checks look at; a store that does not answer is a part of it."""
    state: State = app.extensions["idempotence"]
    patient = Patient(app, state, look_around(os.environ, Path.cwd(), workers=workers))
    try:
        patient = dataclasses.replace(patient, servers=state.store.facts())
        return dataclasses.replace(patient, answers_in=_probe(state))
    except StoreError as error:
        # Where it answers and takes no claim, what it says of itself may tell why.
        return dataclasses.replace(patient, trouble=kind_of(error))


def _probe(state: State) -> float:
    """Claim a key of its own and give it up: that takes every permission that a guard needs."""
    key = f"{state.config.prefix}:{KEYSPACE}:probe:doctor:{os.urandom(16).hex()}"
    owner, store = os.urandom(OWNER_BYTES), state.store
    store.ping()  # connecting is not part of what is measured
    began = time.perf_counter()
    store.claim(key, owner, NO_FINGERPRINT, _PROBE_LEASE, 0)
    store.release(key, owner)
    return time.perf_counter() - began


def examine(patient: Patient) -> Iterator[Finding]:
    """Make all checks."""
    for name, check in CHECKS.items():
        for finding in check(patient):
            yield dataclasses.replace(finding, check=name)


@tool("doctor")
@click.option("--workers", type=click.IntRange(min=1), help="How many processes serve it.")
@click.option("--strict", is_flag=True, help="Let a warning fail, too.")
@as_json
@click.pass_context
def command(ctx: click.Context, *, workers: int | None, strict: bool, as_json: bool) -> None:
    """Examine the store, and all around it.

    It looks at the server behind the store, at the application, and at how it is served.
    Every finding comes with its reason and its remedy:

    \b
    error    it does not work, or it will let repeats through
    warning  it may let repeats through
    note     only you can know whether it is right
    ok       as it should be

    Exit code: 0 where there is no error; 1 where there is one, with --strict also for a warning;
    2 where the command was not understood.

    How many processes serve the application, and whether uWSGI lets it have threads, is read from
    the environment and from gunicorn.conf.py and uwsgi.ini in the current directory.
    """  # noqa: D301 - click's mark for a block that is not to be wrapped
    findings = list(examine(admit(the_app(), workers=workers)))
    if as_json:
        print_json(_report(findings))
    else:
        _print(findings)
    worst = max(finding.severity for finding in findings)
    ctx.exit(int(worst >= (Severity.WARNING if strict else Severity.ERROR)))


def _report(findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "findings": [
            dataclasses.asdict(finding) | {"severity": finding.severity.name.lower()}
            for finding in findings
        ],
        **_counts(findings),
    }


def _counts(findings: Sequence[Finding]) -> dict[str, int]:
    return {
        f"{severity.name.lower()}s": sum(finding.severity is severity for finding in findings)
        for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE)
    }


def _print(findings: Sequence[Finding]) -> None:
    if not in_terminal():
        columns = (
            (f.severity.name.lower(), f.check, f.finding, f.reason, f.remedy) for f in findings
        )
        table((), list(columns))
        return
    severities = [Coloured(f.severity.name.lower(), _COLOURS[f.severity]) for f in findings]
    rows = [
        (severity, f.check, f.finding) for severity, f in zip(severities, findings, strict=True)
    ]
    table(("SEVERITY", "CHECK", "FINDING"), rows)
    for finding in sorted(findings, key=lambda finding: -finding.severity):
        if finding.severity is not Severity.OK:
            _explain(finding)
    counts = (f"{name}: {count}" for name, count in _counts(findings).items())
    click.echo(f"\n{', '.join(counts)}.")


def _explain(finding: Finding) -> None:
    severity = styled(finding.severity.name.lower(), fg=_COLOURS[finding.severity], bold=True)
    click.echo(f"\n{severity} {finding.check}: {finding.finding}")
    for title, text in (("Why", finding.reason), ("Do", finding.remedy)):
        width = min(99, shutil.get_terminal_size().columns)
        click.echo(click.wrap_text(f"{title}: {text}", width, "  ", "       "))
