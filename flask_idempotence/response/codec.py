"""Codec for status, headers and body of a response, a part of its record; see `records`.

The codes of names and pairs belong to the record's version: they may be added to, never
reordered.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from werkzeug.http import HTTP_STATUS_CODES

from .headers import REPLAYED_HEADER, STORED_HEADER

if TYPE_CHECKING:
    from flask import Response

_END = 0x00
_HEAD_ENDS = bytes([_END])
_OTHER = 0x7F
_REASON = 0x7E
_NAMES = (
    *("Content-Type", "Location", "ETag", "Cache-Control", "Content-Language", "Content-Encoding"),
    *("Content-Disposition", "Vary", "Last-Modified", "Expires", "Retry-After", "Link"),
    "Access-Control-Allow-Origin",
)
"""Names whose codes are their numbers, from 1."""

_PAIRS = (
    ("Content-Type", "application/json"),
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Type", "text/plain; charset=utf-8"),
    ("Content-Type", "application/problem+json"),
)
"""Pairs whose codes are their numbers, from 128."""

_NAME_OF = dict(enumerate(_NAMES, 0x01))
_PAIR_OF = dict(enumerate(_PAIRS, 0x80))
_CODE_OF: dict[object, bytes] = {
    known: bytes([code]) for code, known in (*_NAME_OF.items(), *_PAIR_OF.items())
}

_STATUS_OF = {code: f"{code} {reason.upper()}" for code, reason in HTTP_STATUS_CODES.items()}

_FORGOTTEN = frozenset(
    {
        # Of one sender or moment.
        *("set-cookie", "date", "authorization", "authentication-info", "www-authenticate"),
        *("proxy-authenticate", "proxy-authorization", "proxy-authentication-info"),
        # Of one connection (RFC 9110, section 7.6.1).
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        "upgrade",
        # Made again for each response.
        *("content-length", REPLAYED_HEADER.lower(), STORED_HEADER.lower()),
    }
)


def head_of(response: Response) -> bytes:
    """Return status and headers as bytes, without the headers of that one response or connection.

    Raises:
        struct.error: a header of more than 64 kB.
    """
    code = response.status_code
    parts = [struct.pack(">H", code)]
    if response.status != (_STATUS_OF.get(code) or f"{code} UNKNOWN"):
        parts += [bytes([_REASON]), _text(response.status)]
    names = [name.lower() for name, _ in response.headers]
    forgotten = _FORGOTTEN
    if "connection" in names:  # those that it names are of one connection, too
        named = ",".join(response.headers.getlist("Connection")).split(",")
        forgotten = _FORGOTTEN.union(name.strip().lower() for name in named)
    for name, pair in zip(names, response.headers, strict=True):
        if name in forgotten:
            continue
        if code_of_pair := _CODE_OF.get(pair):
            parts.append(code_of_pair)
        elif code_of_name := _CODE_OF.get(pair[0]):
            parts += [code_of_name, _text(pair[1])]
        else:
            parts += [bytes([_OTHER]), _text(pair[0]), _text(pair[1])]
    parts.append(_HEAD_ENDS)
    return b"".join(parts)


def fill(response: Response, content: bytes) -> None:
    """Fill a response from its head and the body behind it.

    Raises:
        struct.error, IndexError, KeyError, ValueError: it is damaged.
    """
    (status,) = struct.unpack_from(">H", content)
    if status != response.status_code:
        response.status_code = status
    response.headers.clear()
    position = 2
    while (code := content[position]) != _END:
        position += 1
        if code in _PAIR_OF:
            response.headers.add(*_PAIR_OF[code])
            continue
        if code == _OTHER:
            name, position = _read_text(content, position)
        elif code != _REASON:
            name = _NAME_OF[code]
        value, position = _read_text(content, position)
        if code == _REASON:
            response.status = value
        else:
            response.headers.add(name, value)
    response.set_data(content[position + 1 :])


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack(">H", len(data)) + data


def _read_text(content: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">H", content, position)
    start = position + 2
    return content[start : start + length].decode("utf-8", "surrogateescape"), start + length
