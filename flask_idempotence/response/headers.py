"""The headers of the library, and those of a request that outlive a response."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flask import Request, Response
from werkzeug.datastructures import Headers

# The slug of a refusal, also where an error handler made the body.
REFUSAL_HEADER = "Idempotence-Refusal"

# `false` where a response goes out before its settlement is stored.
STORED_HEADER = "Idempotent-Stored"

REPLAYED_HEADER = "Idempotent-Replayed"  # `true` on a response that is not the first

# Whole seconds for which a key is remembered, on a first response and on its replays.
EXPIRES_HEADER = "Idempotent-Expires-In"

# The attribute of a request that holds its `ResponseState`.
RESPONSE_STATE = "_flask_idempotence_response"

_CACHE_CONTROL = "Cache-Control"


@dataclass(eq=False, repr=False, slots=True)
class ResponseState:
    """What holds for every response to a request, also for one that replaces another."""

    refusals: list[Exception] = field(default_factory=list)  # the view may have caught them
    headers: dict[str, str] = field(default_factory=dict)
    may_be_stored: bool = False  # by caches: a page whose headers are sent before its body is made


def response_state(request: Request) -> ResponseState:
    state: ResponseState | None = vars(request).get(RESPONSE_STATE)
    if state is None:
        state = vars(request)[RESPONSE_STATE] = ResponseState()
    return state


def forbid_storing(request: Request) -> None:
    """Forbid caches to store the response, even where the application allows it.

    Raises:
        RuntimeError: the response is being streamed, and caches may store it.
    """
    state = response_state(request)
    if state.may_be_stored:
        raise RuntimeError(
            "A token is issued while the page is streamed, whose headers were sent already and "
            "allow caches to store it. Call idempotence_token() or idempotence_field() "
            "in the view and pass the result on, or set Cache-Control: no-store there."
        )
    state.headers[_CACHE_CONTROL] = "no-store"


def add_headers(state: ResponseState, response: Response) -> None:
    for name, value in state.headers.items():
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
