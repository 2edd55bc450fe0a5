"""Forms in temporary files, read piece by piece, so that no long text is kept in memory."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus

from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.formparser import MultiPartParser
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, NeedData

from .body import IN_MEMORY, PIECE, rewound

Value = str | tuple[str, str]
"""The text of a field, or `("sha256", its digest)`."""

Fields = dict[str, list[Value]]
Files = dict[str, list[list[str | None]]]

_SHORT = 1 << 10
"""Characters of the longest text that is never replaced by its digest."""

_LEAST_PART = 32
"""Fewer bytes than a part takes beside its name and its content."""

_LONGEST_FIELD = 1 << 16
"""Characters after which a URL-encoded field is cut off; a token is much shorter."""


class FormTooLong(ValueError):
    """A form whose names alone take too much memory, or that is URL-encoded."""


def read_multipart(
    stream: Any,
    boundary: str,
    max_form_memory_size: int | None,
    max_form_parts: int | None,
    *,
    files: bool,
) -> tuple[Fields, Files]:
    """Return the fields of a multipart form, and its files where these count.

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
    parts = _Parts(max_form_memory_size, files=files)
    for event in _events(decoder, stream):
        if isinstance(event, Field | File):
            parts.begin(event)
        elif isinstance(event, Data):
            parts.add(event)
    return parts.fields, parts.files


def find_values(stream: Any, name: str) -> list[str]:
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


def _events(decoder: MultipartDecoder, stream: Any) -> Iterator[Any]:
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


class _Parts:
    """Collects the parts of a form.

    Once all texts together take more than `IN_MEMORY`, every one that is not short is replaced by
    its digest. So the values depend on nothing but the fields.
    """

    def __init__(self, max_form_memory_size: int | None, *, files: bool) -> None:
        self.fields: Fields = {}
        self.files: Files = {}
        self._limit = max_form_memory_size
        self._takes_files = files
        self._of_names = self._of_texts = 0
        self._name = ""
        self._filename = ""
        self._digest = hashlib.sha256()
        self._text: _Text | None = None

    def begin(self, event: Field | File) -> None:
        """Begin a part."""
        self._name = event.name
        self._text = None
        self._filename = event.filename if isinstance(event, File) else ""
        self._digest = hashlib.sha256()
        if isinstance(event, Field):
            self._text = _Text(MultiPartParser().get_part_charset(event.headers))
        elif not self._takes_files:
            return
        self._of_names += len(event.name or "") + len(self._filename) + _LEAST_PART
        if self._of_names > IN_MEMORY:
            raise FormTooLong

    def add(self, event: Data) -> None:
        """Add a piece of the content of the part."""
        if self._text is not None:
            self._add_text(self._text, event)
        elif self._takes_files:
            self._digest.update(event.data)
            if not event.more_data:
                file: list[str | None] = [self._filename, self._digest.hexdigest()]
                self.files.setdefault(self._name, []).append(file)

    def _add_text(self, text: _Text, event: Data) -> None:
        text.add(event.data, is_last=not event.more_data)
        if self._limit is not None and text.size > self._limit:
            raise RequestEntityTooLarge
        was_long = self._of_texts > IN_MEMORY
        self._of_texts += text.added
        if self._of_texts > IN_MEMORY:
            text.shorten()
            if not was_long:
                for values in self.fields.values():
                    values[:] = map(_shortened, values)
        if not event.more_data:
            self.fields.setdefault(self._name, []).append(text.value())


def _shortened(value: Value) -> Value:
    if isinstance(value, tuple) or len(value) <= _SHORT:
        return value
    return "sha256", hashlib.sha256(value.encode()).hexdigest()


class _Text:
    """The text of a field.

    Attributes:
        size: the bytes so far.
        added: the characters of the last piece.
    """

    def __init__(self, charset: str) -> None:
        self.size = self.added = 0
        self._length = 0
        self._decode = codecs.getincrementaldecoder(charset)("replace").decode
        self._digest = hashlib.sha256()
        self._pieces: list[str] | None = []

    def add(self, data: bytes, *, is_last: bool) -> None:
        """Add a piece."""
        text = self._decode(data, is_last)
        self.size += len(data)
        self.added = len(text)
        self._length += len(text)
        self._digest.update(text.encode())
        if self._pieces is not None:
            self._pieces.append(text)

    def shorten(self) -> None:
        """Keep the digest alone of a text that is not short."""
        if self._length > _SHORT:
            self._pieces = None

    def value(self) -> Value:
        """Return the text or its digest."""
        if self._pieces is None:
            return "sha256", self._digest.hexdigest()
        return "".join(self._pieces)
