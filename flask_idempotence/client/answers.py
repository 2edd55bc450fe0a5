"""What an answer says about trying again, whichever library has received it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

PROBLEM_TYPE = "application/problem+json"  # RFC 9457

REFUSAL_HEADER = "Idempotence-Refusal"

PASSING_REFUSALS = frozenset({"key-in-progress", "lease-lost", "store-unavailable"})
"""Refusals after which another attempt may fare better; `idempotence.js` has the same."""

FINAL_REFUSALS = frozenset(
    {
        "repeat-submit",
        "token-missing",
        "token-invalid",
        "token-expired",
        "token-not-yours",
        "token-spent",
        "key-missing",
        "key-invalid",
        "key-reused",
        "key-repeated",
        "outcome-unknown",
        "response-not-stored",
    }
)
"""Refusals that no further attempt changes, or that one would get round.

A lock says when it opens, and the same submit would then be carried out a second time. Their
status may be any (`IDEMPOTENCE_DUPLICATE_STATUS`, an error handler of the application).
"""

_SLUG = re.compile(r"[\w-]+\Z", re.ASCII)
_LONGEST_SLUG = 64


def was_replayed(response: Any) -> bool:
    """Whether a response is the remembered one to an earlier attempt, and no first answer.

    Args:
        response: of requests, httpx, urllib3, or anything else with `headers`.
    """
    return _is_replay(response.headers)


def _is_replay(headers: Mapping[str, str]) -> bool:
    return headers.get("Idempotent-Replayed", "").strip().lower() == "true"


def is_problem(headers: Mapping[str, str]) -> bool:
    """Whether a body is a problem document."""
    return headers.get("Content-Type", "").partition(";")[0].strip().lower() == PROBLEM_TYPE


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, as far as it matters here.

    Attributes:
        status: its status.
        headers: its headers; their names in any case.
        body: its body, which is looked at where it is a problem document.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def is_settled(self) -> bool:
        """Whether the server says that this is what every attempt will be answered.

        A replay is, whatever its status. So is a result that the server's store has not got yet
        (`Idempotent-Stored: false`): asking again would only wait for the store.
        """
        stored = self.headers.get("Idempotent-Stored", "").strip().lower()
        return _is_replay(self.headers) or stored == "false"

    @property
    def refusal(self) -> str:
        """The slug of the refusal that it is, or an empty text.

        The header says so, whatever the body. Without one, a problem document says so if its type
        ends with a slug of this library, under any base.
        """
        said = self.headers.get(REFUSAL_HEADER, "").strip().lower()
        if said:
            return said
        # Matched in a text without an end, the pattern would take the square of its length.
        found = _SLUG.search(self._problem[-_LONGEST_SLUG:])
        slug = found[0] if found else ""
        return slug if slug in PASSING_REFUSALS | FINAL_REFUSALS else ""

    @property
    def _problem(self) -> str:
        if not is_problem(self.headers):
            return ""
        try:
            problem = json.loads(self.body)
        except (ValueError, RecursionError):
            return ""
        found = problem.get("type") if isinstance(problem, dict) else None
        return found if isinstance(found, str) else ""

    def retry_after(self, now: float) -> float | None:
        """Return the seconds to wait that `Retry-After` asks for, or None where it asks nothing.

        A date is compared with the answer's own `Date`, since the clocks of two machines differ;
        without one, with ours.

        Args:
            now: our time, seconds since 1970.
        """
        value = self.headers.get("Retry-After", "").strip()
        if value.isascii() and value.isdigit():
            return float(value)
        until = _seconds_of(value)
        if until is None:
            return None
        since = _seconds_of(self.headers.get("Date", ""))
        return max(0.0, until - (now if since is None else since))


def _seconds_of(date: str) -> float | None:
    """Return the seconds since 1970 of a date of HTTP, or None where it is none."""
    try:
        moment = parsedate_to_datetime(date)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None
