"""The values of a request's form, which the view can still read."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from flask import Request
from werkzeug.exceptions import RequestEntityTooLarge

from .body import FORM, body_of, digest_of, is_left_unparsed, rewound, was_parsed

FORMS = frozenset({FORM, "multipart/form-data"})

MOST_TEXT = 1 << 22  # bytes of the longest form that is read field by field, without its files

# The bytes that a URL may hold (RFC 3986).
_IN_URLS = re.compile(rb"[!#-;=?-Z\[\]_a-z~]*")


@dataclass(eq=False, repr=False, slots=True)
class Form:
    """The values of a form: of each name the texts, and the pairs of a file's name and SHA-256."""

    fields: Mapping[str, Sequence[str]]
    files: Mapping[str, Sequence[Sequence[str | None]]]


def form_of(request: Request, *, files: bool = False) -> Form | None:
    if request.mimetype not in FORMS:
        return None
    if not was_parsed(request):
        source = _Counted(body_of(request).stream)
        parser = request.make_form_data_parser()
        parser.stream_factory = lambda *_, **__: _Upload(source, is_digested=files)
        parser.silent = False
        try:
            with rewound(source.stream):
                _, fields, uploads = parser.parse(
                    source, request.mimetype, request.content_length, request.mimetype_params
                )
        except ValueError:
            return None
    elif is_left_unparsed(request):
        return None
    else:
        fields, uploads = request.form, request.files
    digests = {
        name: [[file.filename, _digest(file.stream)] for file in listed]
        for name, listed in (uploads.lists() if files else ())
    }
    return Form(dict(fields.lists()), digests)


def compared_form(request: Request, *, files: bool) -> Form | None:
    """Return the values by which a request is compared, or None where the body is no form.

    Raises:
        ValueError: the body is to be compared by its bytes. A parser reads different bodies alike
            where they are no form, and the view may read the bytes of a form beyond the limits.
    """
    if not was_parsed(request):
        data = body_of(request).data
        # None: it is long.
        is_plain = data is not None and (not data or (b"=" in data and _IN_URLS.fullmatch(data)))
        if request.mimetype == FORM and not is_plain:
            raise ValueError
    try:
        return form_of(request, files=files)
    except RequestEntityTooLarge:
        raise ValueError from None


def _digest(stream: IO[bytes]) -> str:
    return stream.sha256.hexdigest() if isinstance(stream, _Upload) else digest_of(stream)


class _Counted(io.BytesIO):
    """A body in a file, of which a parser may read so much beside its uploads."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self.stream = stream
        self.text = 0

    def read(self, size: int | None = -1) -> bytes:
        data = self.stream.read(MOST_TEXT + 1 if size is None or size < 0 else size)
        self.text += len(data)
        if self.text > MOST_TEXT:
            raise RequestEntityTooLarge
        return data


class _Upload(io.BytesIO):
    """An uploaded file, of which nothing is kept but its SHA-256, where that counts."""

    def __init__(self, source: _Counted, *, is_digested: bool) -> None:
        super().__init__()
        self._source = source
        self._is_digested = is_digested
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:  # type: ignore[override]  # Werkzeug writes bytes
        self._source.text -= len(data)
        if self._is_digested:
            self.sha256.update(data)
        return len(data)
