"""What the doctor finds, and what it looks at."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask

    from ..extension import State
    from ..stores.facts import DatabaseFacts, ServerFacts
    from .surroundings import Surroundings


class Severity(enum.IntEnum):
    """How bad it is."""

    OK = 0
    NOTE = 1
    """Something that only you can know: nothing may be wrong."""
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        severity: how bad it is.
        finding: what is there.
        reason: why that matters; empty where all is well.
        remedy: what to do about it.
        check: the name of the check; the doctor fills it in.
    """

    severity: Severity
    finding: str
    reason: str = ""
    remedy: str = ""
    check: str = ""


@dataclass(frozen=True, slots=True)
class Patient:
    """What the checks look at.

    Attributes:
        app: the application.
        state: what the extension keeps of it.
        surroundings: how it is served, as far as that can be seen.
        servers: what the servers behind its store say; empty where the store does not answer.
        answers_in: seconds in which the store answered; None where it did not.
        trouble: what kind of error there was instead.
    """

    app: Flask
    state: State
    surroundings: Surroundings
    servers: Sequence[ServerFacts | DatabaseFacts] = field(default=())
    answers_in: float | None = None
    trouble: str = ""

    @property
    def is_at_work(self) -> bool:
        """Whether this is meant to be used, and not to be developed or tested."""
        return not (self.app.debug or self.app.testing)


Check = Callable[[Patient], Iterator[Finding]]


def ok(finding: str) -> Finding:
    """Make a finding of what is as it should be."""
    return Finding(Severity.OK, finding)


def note(finding: str, reason: str, remedy: str) -> Finding:
    """Make a finding of what only a person can judge."""
    return Finding(Severity.NOTE, finding, reason, remedy)


def warning(finding: str, reason: str, remedy: str) -> Finding:
    """Make a finding of what may let a repeat through."""
    return Finding(Severity.WARNING, finding, reason, remedy)


def error(finding: str, reason: str, remedy: str) -> Finding:
    """Make a finding of what does not work, or will let repeats through."""
    return Finding(Severity.ERROR, finding, reason, remedy)
