"""User callbacks: the application's own functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Response

IdentityLoader = Callable[[], "str | None"]
FailedPredicate = Callable[["Response"], bool]


@dataclass(slots=True)
class Callbacks:
    """The application's own functions, which may be registered after `init_app`.

    Attributes:
        load_identity: the first source of identities, or None.
        result_failed: the predicate of failed results, or None for the built-in one.
    """

    load_identity: IdentityLoader | None = None
    result_failed: FailedPredicate | None = None

    def has_failed(self, response: Response) -> bool:
        """Whether a response is a failed result, by the predicate in force."""
        return (self.result_failed or result_failed)(response)

    def has_failed_since(self, response: Response) -> bool:
        """Whether a response that `after_request` functions have changed is a failed result.

        The application's predicate knows the responses of views only. In its place, the status
        counts.
        """
        if self.result_failed is None:
            return result_failed(response)
        return response.status_code >= 400


def result_failed(response: Response) -> bool:
    """Whether a status is 400 or more, or a JSON object's `success` is `false`."""
    if response.status_code >= 400:
        return True
    if response.is_streamed or b'"success"' not in response.data or not response.is_json:
        return False
    result = response.get_json(silent=True)
    return isinstance(result, dict) and result.get("success") is False
