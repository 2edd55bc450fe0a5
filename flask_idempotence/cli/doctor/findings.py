"""The facts that the doctor's checks read, and their findings."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from flask import Flask

from ...stores.facts import DatabaseFacts, ServerFacts
from ..context import State


class Severity(enum.IntEnum):
    """Severity of a finding, in ascending order; a note is for a person to judge."""

    OK = 0
    NOTE = 1
    WARNING = 2
    ERROR = 3

    @property
    def label(self) -> str:
        """The name that a report shows."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; reason and remedy are empty where it is ok."""

    severity: Severity
    finding: str
    reason: str = ""
    remedy: str = ""
    check: str = ""


@dataclass(slots=True)
class DoctorContext:
    """Facts about the deployment.

    Attributes:
        workers: how many processes serve it; None for unknown.
        probe_time: seconds in which the store granted a claim and took it back.
        store_error: the class of the driver's error, where it did not.
    """

    app: Flask
    state: State
    workers: int | None = None
    servers: Sequence[ServerFacts | DatabaseFacts] = ()
    probe_time: float | None = None
    store_error: str = ""

    @property
    def in_production(self) -> bool:
        """Whether the application is neither debugged nor tested."""
        return not (self.app.debug or self.app.testing)


Check = Callable[[DoctorContext], Iterable[Finding]]

ok = partial(Finding, Severity.OK)
note = partial(Finding, Severity.NOTE)
warning = partial(Finding, Severity.WARNING)
error = partial(Finding, Severity.ERROR)
