"""Status, headers and body of a response as bytes; a part of what a record is, see `records`.

The codes of names and pairs belong to the record's version: they may be added to, never changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from werkzeug.http import HTTP_STATUS_CODES

from .outcome import REPLAYED_HEADER, STORED_HEADER

if TYPE_CHECKING:
    from flask import Response

_END = 0x00
_OTHER = 0x7F
_REASON = 0x7E
_NAMES = {
    "Content-Type": 0x01,
    "Location": 0x02,
    "ETag": 0x03,
    "Cache-Control": 0x04,
    "Content-Language": 0x05,
    "Content-Encoding": 0x06,
    "Content-Disposition": 0x07,
    "Vary": 0x08,
    "Last-Modified": 0x09,
    "Expires": 0x0A,
    "Retry-After": 0x0B,
    "Link": 0x0C,
    "Access-Control-Allow-Origin": 0x0D,
}
_PAIRS = {
    ("Content-Type", "application/json"): 0x80,
    ("Content-Type", "text/html; charset=utf-8"): 0x81,
    ("Content-Type", "text/plain; charset=utf-8"): 0x82,
    ("Content-Type", "application/problem+json"): 0x83,
}
_NAME_OF = {code: name for name, code in _NAMES.items()}
_PAIR_OF = {code: pair for pair, code in _PAIRS.items()}

_FORGOTTEN = frozenset(
    {
        # Whom and when it was meant for.
        "set-cookie",
        "date",
        "authorization",
        "authentication-info",
        "www-authenticate",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-authentication-info",
        # Of the one connection (RFC 9110, section 7.6.1).
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        # Comes back by itself.
        "content-length",
        REPLAYED_HEADER.lower(),
        STORED_HEADER.lower(),
    }
)


def head_of(response: Response) -> bytes:
    """Return status and headers as bytes, without the headers that were about that one answer.

    Raises:
        struct.error: a header of more than 64 kB.
    """
    status = struct.pack(">H", response.status_code)
    return b"".join([status, *_headers_of(response), bytes([_END])])


def _headers_of(response: Response) -> Iterator[bytes]:
    code = response.status_code
    if response.status != f"{code} {HTTP_STATUS_CODES.get(code, 'unknown').upper()}":
        yield bytes([_REASON]) + _text(response.status)
    headers = [(name.lower(), name, value) for name, value in response.headers]
    # What `Connection` names is of the one connection, too.
    named = {
        other.strip().lower()
        for lower, _, value in headers
        if lower == "connection"
        for other in value.split(",")
    }
    for lower, name, value in headers:
        if lower in _FORGOTTEN or lower in named:
            continue
        if (name, value) in _PAIRS:
            yield bytes([_PAIRS[name, value]])
        elif name in _NAMES:
            yield bytes([_NAMES[name]]) + _text(value)
        else:
            yield bytes([_OTHER]) + _text(name) + _text(value)


def fill(response: Response, content: bytes) -> None:
    """Make a response what a head and a body behind it say.

    Raises:
        struct.error, IndexError, KeyError, ValueError: it is damaged.
    """
    (status,) = struct.unpack_from(">H", content)
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
