"""The headers of the library, and those that a response keeps even if a hook replaces it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request as current_request

if TYPE_CHECKING:
    from flask import Request, Response

REFUSAL_HEADER = "Idempotence-Refusal"
"""The slug of a refusal, also where an error handler made the body."""

STORED_HEADER = "Idempotent-Stored"
"""`false` where a response goes out before its settlement is stored."""

REPLAYED_HEADER = "Idempotent-Replayed"
"""`true` on a response that is not the first."""

KEPT_HEADERS = "_flask_idempotence_headers"
REFUSED = "_flask_idempotence_refused"
"""The attribute of a request in which a guard has refused."""

_MAY_BE_STORED = "_flask_idempotence_may_be_stored"
_CACHE_CONTROL = "Cache-Control"


def keep_header(name: str, value: str) -> None:
    """Put a header on the response that is sent, even if a hook replaces the response."""
    vars(current_request).setdefault(KEPT_HEADERS, {})[name] = value


def note_refusal() -> None:
    """Note that a guard has refused in this request; the view may continue."""
    vars(current_request)[REFUSED] = True


def forbid_storing(request: Request) -> None:
    """Forbid caches to store the response, even where the application allows it.

    Raises:
        RuntimeError: the response is being streamed, and caches may store it.
    """
    if vars(request).get(_MAY_BE_STORED):
        raise RuntimeError(
            "A token is issued while the page is streamed, whose headers were sent already and "
            "allow caches to store it. Call idempotence_token() or idempotence_field() "
            "in the view and pass the result on, or set Cache-Control: no-store there."
        )
    vars(request).setdefault(KEPT_HEADERS, {})[_CACHE_CONTROL] = "no-store"


def add_kept_headers(request: Request, response: Response) -> None:
    """Add the headers that were kept to the response that is sent."""
    kept: dict[str, str] = vars(request)[KEPT_HEADERS]
    for name, value in kept.items():
        if name != _CACHE_CONTROL:
            response.headers.setdefault(name, value)
        elif not _is_unstorable(response):
            response.headers[name] = value


def note_streamed(request: Request, response: Response) -> None:
    """Note whether caches may store a response whose headers are sent before its body is made."""
    # Not the response: a body with its request's context would keep it from being collected.
    vars(request)[_MAY_BE_STORED] = not _is_unstorable(response)


def _is_unstorable(response: Response) -> bool:
    lines = response.headers.getlist(_CACHE_CONTROL)
    return any("no-store" in line.lower() for line in lines)
