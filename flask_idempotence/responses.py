"""What a response says about its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Response


REFUSAL_HEADER = "Idempotence-Refusal"
"""Carries the slug of a refusal, whatever made the response's body."""

STORED_HEADER = "Idempotent-Stored"
"""Says `false` where a response goes out before the store has been told of it."""

REPLAYED_HEADER = "Idempotent-Replayed"
"""Says `true` on a response that is not the first."""


_TRANSIENT = frozenset({401, 403, 408, 409, 425, 429})


def is_transient(response: Response) -> bool:
    """Whether the same request may well fare better at another time.

    Those are the statuses of 500 and more; those that ask for a pause or report a rival's work;
    and those about credentials, which the client may send anew.
    """
    return response.status_code >= 500 or response.status_code in _TRANSIENT


def result_failed(response: Response) -> bool:
    """Whether a response is a failed result.

    That is a status of 400 or more, or a JSON object whose `success` is `false`.
    """
    if response.status_code >= 400:
        return True
    if response.is_streamed or b'"success"' not in response.data or not response.is_json:
        return False
    result = response.get_json(silent=True)
    return isinstance(result, dict) and result.get("success") is False
