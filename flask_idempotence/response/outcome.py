"""The outcome of a response, and the headers that tell of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request as current_request

if TYPE_CHECKING:
    from flask import Request, Response


REFUSAL_HEADER = "Idempotence-Refusal"
"""Carries the slug of a refusal, whatever made the response's body."""

STORED_HEADER = "Idempotent-Stored"
"""Says `false` where a response goes out before the store has been told of it."""

REPLAYED_HEADER = "Idempotent-Replayed"
"""Says `true` on a response that is not the first."""


KEPT_HEADERS = "_flask_idempotence_headers"
_TRANSIENT = frozenset({401, 403, 408, 409, 425, 429})


def is_transient(response: Response) -> bool:
    """Whether the same request may well fare better at another time.

    Those are the statuses of 500 and more; those that ask for a pause or report a rival's work;
    and those about credentials, which the client may send anew.
    """
    return response.status_code >= 500 or response.status_code in _TRANSIENT


def keep_header(name: str, value: str, *, status: int | None = None) -> None:
    """Have a header on the response that is sent, even if a hook replaces the response.

    Args:
        name: the header's name.
        value: its value.
        status: the only status with which it is true; None for any.
    """
    vars(current_request).setdefault(KEPT_HEADERS, {})[name] = (value, status)


def add_kept_headers(request: Request, response: Response) -> None:
    """Add the headers that were to be kept to the response that is sent."""
    kept: dict[str, tuple[str, int | None]] | None = vars(request).get(KEPT_HEADERS)
    for name, (value, status) in kept.items() if kept else ():
        if status is None or status == response.status_code:
            response.headers.setdefault(name, value)
