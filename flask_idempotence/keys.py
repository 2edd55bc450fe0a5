"""The idempotency key as a client sends it.

The rules are those of draft-ietf-httpapi-idempotency-key-header-07, section 2.1 (the value is a
String of Structured Fields, RFC 8941, section 3.3.3), and Stripe's for what is older than the
draft: a bare value, and 255 characters at most.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .errors import KeyInvalid

if TYPE_CHECKING:
    from flask import Request

LONGEST_KEY = 255

LONGEST_VALUE = 2 * LONGEST_KEY + 2
"""Characters of a header's value: between quotes, each character of the key escaped."""

_BARE = rf"[!#-+\--~](?:[ -+\--~]{{0,{LONGEST_KEY - 2}}}[!-+\--~])?"
_QUOTED = rf'"(?:[ !#-\[\]-~]|\\["\\]){{1,{LONGEST_KEY}}}"'

VALUE_PATTERN = f"^(?:{_BARE}|{_QUOTED})$"
"""Values that are keys, without blanks around them, as a regular expression of JSON Schema too."""

_VALUE = re.compile(f"{_BARE}|{_QUOTED}")
_ESCAPED = re.compile(r'\\(["\\])')


def key_in_header(request: Request, header: str) -> str | None:
    """Return the key in a request's header, or None where there is no such header.

    Raises:
        KeyInvalid: there are several, or it is empty, too long, or not printable ASCII.
    """
    value = request.headers.get(header)
    return None if value is None else parse_key(value)


def parse_key(value: str) -> str:
    """Return the key that a header's value stands for; the quoted and the bare form are one key.

    Args:
        value: the value. A server joins several lines of one header with commas, so a bare key
            has none; a quoted one may.

    Raises:
        KeyInvalid: it is no such value.
    """
    value = value.strip(" \t")
    if len(value) > LONGEST_VALUE or not _VALUE.fullmatch(value):
        raise KeyInvalid
    if not value.startswith('"'):
        return value
    return _ESCAPED.sub(r"\1", value[1:-1])


def key_of_value(value: Any) -> str | None:
    """Return the key that an application's own function has found, or None for none.

    What it found comes from the client, so it may be anything.

    Raises:
        KeyInvalid: it is neither a number nor a text, or not of 1 to 255 characters.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise KeyInvalid
    # Numbers of thousands of digits are not even turned into text.
    key = str(value) if isinstance(value, str) or abs(value) < 10**LONGEST_KEY else ""
    if not 0 < len(key) <= LONGEST_KEY:
        raise KeyInvalid
    return key
