"""The part of an answer that decides about another attempt, whichever library received it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol

from ..errors import SLUGS

REFUSAL_HEADER = "Idempotence-Refusal"

_SLUG = re.compile(r"[\w-]+\Z", re.ASCII)
_LONGEST_SLUG = 64


class HasHeaders(Protocol):
    """A response of requests, httpx, urllib3, or any other library."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; their names in any case."""


def was_replayed(response: HasHeaders) -> bool:
    """Return whether a response is a replay of the one to an earlier attempt.

    Args:
        response: a response of requests, httpx, urllib3, or any object with `headers`.
    """
    return _value_of(response.headers, "Idempotent-Replayed") == "true"


def is_problem(headers: Mapping[str, str]) -> bool:
    """Whether a body is a problem document (RFC 9457)."""
    kind = _value_of(headers, "Content-Type").partition(";")[0]
    return kind.strip() == "application/problem+json"


def _value_of(headers: Mapping[str, str], name: str) -> str:
    return headers.get(name, "").strip().lower()


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; its headers' names are in any case, its body is used if a problem document."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def is_settled(self) -> bool:
        """Whether every further attempt would get this same answer.

        A replay is settled with any status. So is a result that the server's store has not
        acknowledged (`Idempotent-Stored: false`): another attempt would only wait for the store.
        """
        return was_replayed(self) or _value_of(self.headers, "Idempotent-Stored") == "false"

    @property
    def refusal(self) -> str:
        """The slug of a refusal, or an empty text.

        The header has it. Without one, the type of a problem document has it, if it ends with a
        slug of this library, under any base.
        """
        if slug := _value_of(self.headers, REFUSAL_HEADER):
            return slug
        if not is_problem(self.headers):
            return ""
        try:
            problem = json.loads(self.body)
        except (ValueError, RecursionError):
            return ""
        kind = problem.get("type") if isinstance(problem, dict) else None
        # The cut keeps the search linear: it would take the square of the type's length.
        found = _SLUG.search(kind[-_LONGEST_SLUG:]) if isinstance(kind, str) else None
        return found[0] if found and found[0] in SLUGS else ""

    def retry_after(self, now: float) -> float | None:
        """Return the seconds that `Retry-After` asks for, or None.

        A date is compared with the answer's own `Date`, since the clocks of two machines differ;
        without one, with `now`, in seconds since 1970.
        """
        value = self.headers.get("Retry-After", "").strip()
        if value.isascii() and value.isdigit():
            return float(value)
        until = _timestamp_of(value)
        if until is None:
            return None
        since = _timestamp_of(self.headers.get("Date", ""))
        return max(0.0, until - (now if since is None else since))


def _timestamp_of(date: str) -> float | None:
    """Return the seconds since 1970 of an HTTP date, or None where it is malformed."""
    try:
        moment = parsedate_to_datetime(date)
        utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (utc - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
