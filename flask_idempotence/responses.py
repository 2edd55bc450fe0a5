"""What a response says about its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Response


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
