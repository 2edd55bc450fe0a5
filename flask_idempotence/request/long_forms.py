"""Forms in temporary files, read piece by piece, so that no long text is kept in memory."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterator
from typing import IO
from urllib.parse import unquote_plus

from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.formparser import MultiPartParser
from werkzeug.sansio.multipart import (
    Data,
    Epilogue,
    Event,
    Field,
    File,
    MultipartDecoder,
    NeedData,
)

from .body import IN_MEMORY, PIECE, Form, Text, rewound

_SHORT = 1 << 10
"""Characters of the longest text that is never replaced by its digest."""

_LEAST_PART = 32
"""Fewer bytes than a part takes beside its name and its content."""

_LONGEST_FIELD = 1 << 16
"""Characters after which a URL-encoded field is cut off; a token is much shorter."""


class FormTooLong(ValueError):
    """A form whose names alone take too much memory, or that is URL-encoded."""


def find_values(stream: IO[bytes], name: str) -> list[str]:
    """Return the values of one field of a URL-encoded form; none where the form is no UTF-8.

    A value is cut off after 64 KiB.
    """
    values = []
    pieces = iter(lambda: stream.read(PIECE), b"")
    try:
        with rewound(stream):
            for field in _encoded_fields(codecs.iterdecode(pieces, "utf-8")):
                sent, _, value = field.partition("=")
                if sent == name or (("%" in sent or "+" in sent) and unquote_plus(sent) == name):
                    values.append(unquote_plus(value))
    except UnicodeDecodeError:  # Werkzeug finds no field in it
        return []
    return values


def _encoded_fields(texts: Iterator[str]) -> Iterator[str]:
    rest = ""
    for text in texts:
        *whole, rest = (rest + text).split("&")
        yield from whole
        rest = rest[:_LONGEST_FIELD]
    yield rest


def read_multipart(
    stream: IO[bytes],
    boundary: str,
    max_form_memory_size: int | None,
    max_form_parts: int | None,
    *,
    files: bool,
) -> Form:
    """Return the fields of a multipart form, and its files where these count.

    Once all texts together take more than `IN_MEMORY`, every one that is not short is replaced by
    its digest. So the values depend on nothing but the fields.

    Raises:
        RequestEntityTooLarge: it is beyond a limit.
        FormTooLong: its names take more than 1 MiB.
        ValueError: it is no such form.
    """
    if not boundary:
        raise ValueError("no boundary")
    decoder = MultipartDecoder(
        boundary.encode("ascii"), max_form_memory_size, max_parts=max_form_parts
    )
    texts = _Texts(max_form_memory_size)
    uploads: dict[str, list[list[str]]] = {}
    of_names = 0
    events = _events(decoder, stream)
    for part in events:
        if not isinstance(part, Field | File) or (isinstance(part, File) and not files):
            continue
        filename = part.filename if isinstance(part, File) else ""
        of_names += len(part.name or "") + len(filename) + _LEAST_PART
        if of_names > IN_MEMORY:
            raise FormTooLong
        if isinstance(part, Field):
            texts.read(part, _content(events))
        else:
            digest = hashlib.sha256()
            for piece in _content(events):
                digest.update(piece.data)
            uploads.setdefault(part.name, []).append([filename, digest.hexdigest()])
    return Form(texts.fields, uploads)


def _events(decoder: MultipartDecoder, stream: IO[bytes]) -> Iterator[Event]:
    """Yield the events of a decoder, fed with the same pieces as by Werkzeug's own parser."""
    is_more = True
    while is_more:
        piece = stream.read(PIECE)
        is_more = bool(piece)
        decoder.receive_data(piece or None)
        event = decoder.next_event()
        while not isinstance(event, Epilogue | NeedData):
            yield event
            event = decoder.next_event()


def _content(events: Iterator[Event]) -> Iterator[Data]:
    """Yield the pieces of one part."""
    for event in events:
        if isinstance(event, Data):
            yield event
            if not event.more_data:
                return


class _Texts:
    """The texts of a form's fields, long ones as digests once all take more than `IN_MEMORY`."""

    def __init__(self, max_form_memory_size: int | None) -> None:
        self.fields: dict[str, list[Text]] = {}
        self._limit = max_form_memory_size
        self._total = 0

    def read(self, field: Field, content: Iterator[Data]) -> None:
        """Add the text of a field."""
        charset = MultiPartParser().get_part_charset(field.headers)
        decode = codecs.getincrementaldecoder(charset)("replace").decode
        digest, pieces = hashlib.sha256(), []
        size = length = 0
        for piece in content:
            size += len(piece.data)
            if self._limit is not None and size > self._limit:
                raise RequestEntityTooLarge
            text = decode(piece.data, not piece.more_data)
            length += len(text)
            digest.update(text.encode())
            pieces.append(text)
            self._count(len(text))
            if self._is_long(length):
                pieces.clear()
        value = ("sha256", digest.hexdigest()) if self._is_long(length) else "".join(pieces)
        self.fields.setdefault(field.name, []).append(value)

    def _count(self, characters: int) -> None:
        was_small = self._total <= IN_MEMORY
        self._total += characters
        if was_small and self._total > IN_MEMORY:
            for values in self.fields.values():
                values[:] = map(self._shortened, values)

    def _is_long(self, length: int) -> bool:
        return length > _SHORT and self._total > IN_MEMORY

    def _shortened(self, value: Text) -> Text:
        if isinstance(value, tuple) or not self._is_long(len(value)):
            return value
        return "sha256", hashlib.sha256(value.encode()).hexdigest()
