"""The headers of the library, and the note on a request that outlives a response."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flask import Request, Response
from werkzeug.datastructures import Headers

REFUSAL_HEADER = "Idempotence-Refusal"
"""The slug of a refusal, also where an error handler made the body."""

STORED_HEADER = "Idempotent-Stored"
"""`false` where a response goes out before its settlement is stored."""

REPLAYED_HEADER = "Idempotent-Replayed"
"""`true` on a response that is not the first."""

EXPIRES_HEADER = "Idempotent-Expires-In"
"""Whole seconds for which a key is remembered, on a first response and on its replays."""

NOTE = "_flask_idempotence_note"
"""The attribute of a request that holds its note."""

_CACHE_CONTROL = "Cache-Control"


@dataclass(eq=False, repr=False, slots=True)
class RequestNote:
    """A request's claims, replay and refusals."""

    claims: list[Any] = field(default_factory=list)  # of its guards, outermost first
    replayed: int | None = None  # status of the response that is replayed; 0 until it is certain
    runs_unguarded: bool = False  # a guard by a key has let the view run without a claim
    has_refused: bool = False  # a guard has refused; the view may continue
    observed: Any = None  # what guards have found that only observe
    has_met_outage: bool = False  # the store has not answered a guard of it
    headers: dict[str, str] = field(default_factory=dict)  # also if a hook replaces the response
    may_be_stored: bool = False  # by caches: a page whose headers are sent before its body is made


def note_on(request: Request) -> RequestNote:
    note: RequestNote | None = vars(request).get(NOTE)
    if note is None:
        note = vars(request)[NOTE] = RequestNote()
    return note


def forbid_storing(request: Request) -> None:
    """Forbid caches to store the response, even where the application allows it.

    Raises:
        RuntimeError: the response is being streamed, and caches may store it.
    """
    note = note_on(request)
    if note.may_be_stored:
        raise RuntimeError(
            "A token is issued while the page is streamed, whose headers were sent already and "
            "allow caches to store it. Call idempotence_token() or idempotence_field() "
            "in the view and pass the result on, or set Cache-Control: no-store there."
        )
    note.headers[_CACHE_CONTROL] = "no-store"


def add_kept_headers(note: RequestNote, response: Response) -> None:
    for name, value in note.headers.items():
        if name != _CACHE_CONTROL:
            response.headers.setdefault(name, value)
        elif may_be_stored(response):
            response.headers[name] = value


def headers_of(response: Response) -> Headers:
    """Return the headers of a response, where an application may have put a dictionary."""
    headers: Any = response.headers
    return headers if isinstance(headers, Headers) else Headers(headers)


def may_be_stored(response: Response) -> bool:
    lines = headers_of(response).getlist(_CACHE_CONTROL)
    return not any("no-store" in line.lower() for line in lines)
