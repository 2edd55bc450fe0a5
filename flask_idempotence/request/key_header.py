"""The idempotency key as a client sends it.

The rules are those of draft-ietf-httpapi-idempotency-key-header-07, section 2.1 (the value is a
String of Structured Fields, RFC 8941, section 3.3.3), and Stripe's older ones: a bare value, and
255 characters at most.
"""

from __future__ import annotations

import binascii
import functools
import re
from itertools import pairwise
from uuid import UUID

from flask import Request

from ..response.refusals import KeyInvalid

LONGEST_KEY = 255

# Characters of a header's value: between quotes, each character of the key escaped.
LONGEST_VALUE = 2 * LONGEST_KEY + 2

_BARE = rf"[!#-+\--~](?:[ -+\--~]{{0,{LONGEST_KEY - 2}}}[!-+\--~])?"
_QUOTED = rf'"(?:[ !#-\[\]-~]|\\["\\]){{1,{LONGEST_KEY}}}"'

# Values that are keys, without blanks around them, as a regular expression of JSON Schema too.
VALUE_PATTERN = f"^(?:{_BARE}|{_QUOTED})$"

_VALUE = re.compile(VALUE_PATTERN)

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_ULID = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{9}(?=.*[0-9])(?=.*[a-z])[0-9a-hjkmnp-tv-z]{16}")
_HEX = re.compile(r"(?=.*[a-f])[0-9a-f]{32,}")
_BASE64 = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])([A-Za-z0-9+/_-]{22,})={0,2}")
_SAME = re.compile(r"(.)\1{5}")
_FEWEST_BYTES = 10
_FEWEST_CHARACTERS = 8
_FEWEST_PAIRS = 18

_ESCAPED = re.compile(r'\\(["\\])')


@functools.lru_cache(maxsize=1024)
def environ_key(header: str) -> str:
    return f"HTTP_{header.upper().replace('-', '_')}"


def key_in_header(request: Request, header: str) -> str | None:
    value = request.environ.get(environ_key(header))
    return None if value is None else parse_key(value)


def parse_key(value: str) -> str:
    """Return the key in a header's value; the quoted and the bare form are one key.

    A server joins several lines of one header with commas, so a bare key has none.
    """
    value = value.strip(" \t")
    if not _VALUE.fullmatch(value):
        raise KeyInvalid
    if not value.startswith('"'):
        return value
    return _ESCAPED.sub(r"\1", value[1:-1])


def key_of_value(value: object) -> str | None:
    """Return the key that an application's own function has found, or None for none.

    The value comes from the client, so it may be anything.
    """
    if value is None:
        return None
    key = ""
    if isinstance(value, str):
        key = str.__str__(value)  # a subclass may show itself masked
    elif isinstance(value, UUID):
        key = UUID.__str__(value)
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**LONGEST_KEY:
        key = int.__repr__(value)  # numbers of thousands of digits are not even turned into text
    if not 0 < len(key) <= LONGEST_KEY:
        raise KeyInvalid(
            f"The idempotency key must be a text of 1 to {LONGEST_KEY} characters, an integer or "
            "a UUID."
        )
    return key


def is_unguessable(key: str) -> bool:
    """Whether a key looks random, and too long to guess.

    It is a UUID of version 4 or 7 (others are made from times and names, and may be guessed), a
    ULID, or 128 bits or more in hexadecimal or base64 that are no encoded text.
    """
    folded = key.lower()
    if _UUID.fullmatch(folded) or _HEX.fullmatch(folded):
        digits = folded.replace("-", "")
        data = bytes.fromhex(digits[: len(digits) // 2 * 2])
        return len(set(data)) >= _FEWEST_BYTES and not data.isascii()
    if _ULID.fullmatch(folded):
        return _is_varied(folded)
    if (base64 := _BASE64.fullmatch(key)) is None or not _is_varied(key):
        return False
    text = base64[1]
    plain = text[: len(text) // 4 * 4].translate(str.maketrans("-_", "+/"))
    return _is_no_phrase(text) and not binascii.a2b_base64(plain).isascii()


def _is_varied(key: str) -> bool:
    plain = key.replace("-", "")
    has_pairs = len(set(pairwise(plain))) >= _FEWEST_PAIRS  # unlike 0123456789 twice
    return len(set(plain)) >= _FEWEST_CHARACTERS and has_pairs and not _SAME.search(key)


def _is_no_phrase(key: str) -> bool:
    """Whether letters and digits alternate as they do at random, and not as in words."""
    kinds = [(c.islower(), c.isupper()) for c in key if c.isalnum()]
    changes = sum(one != next_ for one, next_ in pairwise(kinds))
    return 8 * (len(key) - len(kinds)) <= len(key) and 5 * changes >= 2 * len(kinds)
