"""The values of a request's form, which the view can still read."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING

from werkzeug.formparser import FormDataParser

from .body import (
    FORM,
    MULTIPART,
    Body,
    Form,
    body_of,
    digest_of,
    is_left_unparsed,
    rewound,
    was_parsed,
)
from .long_forms import FormTooLong, find_values, read_multipart

if TYPE_CHECKING:
    from flask import Request
    from werkzeug.datastructures import FileStorage, MultiDict

FORMS = frozenset({FORM, MULTIPART})


def form_of(request: Request, *, files: bool = False) -> Form | None:
    """Return the values of a form, or None where the body is none.

    Where the texts of a multipart form take more than 1 MiB together, those of more than 1 KiB are
    replaced by their digests. This depends on the fields alone, and not on the files beside them.

    Args:
        request: the request, whose form the view can still read.
        files: whether uploaded files count.

    Raises:
        FormTooLong: it is to be compared by its bytes.
        HTTPException, ConfigurationError: as from `body_of`.
    """
    if request.mimetype not in FORMS:
        return None
    if was_parsed(request):
        if is_left_unparsed(request):
            return None
        return _form(request.form, request.files if files else None)
    body = body_of(request)
    parser = request.make_form_data_parser()
    if body.data is None:
        if request.mimetype == FORM:
            raise FormTooLong
        if type(parser) is FormDataParser:  # else the application has its own idea of a form
            return _read_in_pieces(request, body, parser, files=files)
    return _parsed(request, body, parser, files=files)


def values_of(request: Request, name: str) -> list[str]:
    """Return the values of one field, with a digest for a long text; none where there is no form.

    Raises:
        HTTPException, ConfigurationError: as from `body_of`.
    """
    try:
        form = form_of(request)
    except FormTooLong:
        return find_values(body_of(request).stream, name) if request.mimetype == FORM else []
    values = form.fields.get(name, ()) if form is not None else ()
    return [value if isinstance(value, str) else " ".join(value) for value in values]


def names_of(request: Request) -> Iterable[str]:
    """Return the names of a form's fields; none for one that is compared by its bytes.

    Raises:
        HTTPException, ConfigurationError: as from `body_of`.
    """
    try:
        form = form_of(request)
    except FormTooLong:
        return ()
    return filter(None, form.fields) if form is not None else ()  # a part may have no name


def _parsed(request: Request, body: Body, parser: FormDataParser, *, files: bool) -> Form | None:
    parser.stream_factory = _Digest if files else _Discarded
    parser.silent = False
    stream = io.BytesIO(body.data) if body.data is not None else body.stream
    try:
        with rewound(stream):
            _, fields, uploaded = parser.parse(
                stream, request.mimetype, request.content_length, request.mimetype_params
            )
    except ValueError:
        return None
    return _form(fields, uploaded if files else None)


def _form(fields: MultiDict[str, str], files: MultiDict[str, FileStorage] | None) -> Form:
    uploaded = {
        name: [[file.filename, _digest(file.stream)] for file in listed]
        for name, listed in (files.lists() if files is not None else ())
    }
    return Form(dict(fields.lists()), uploaded)


def _digest(stream: IO[bytes]) -> str:
    return stream.hexdigest() if isinstance(stream, _Digest) else digest_of(stream)


class _Discarded(io.BytesIO):
    """An uploaded file that does not count, and is not kept."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()
        self.write = len  # type: ignore[assignment]  # takes the bytes, and returns their number


class _Digest(_Discarded):
    """An uploaded file, of which only the SHA-256 is kept."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()
        digest = hashlib.sha256()
        self.write = digest.update  # type: ignore[assignment]  # Werkzeug takes no number
        self.hexdigest = digest.hexdigest


def _read_in_pieces(
    request: Request, body: Body, parser: FormDataParser, *, files: bool
) -> Form | None:
    """Return a multipart form in a temporary file, which is read once for all guards."""
    limits = parser.max_form_memory_size, parser.max_form_parts
    how = files, *limits
    if how not in body.forms:
        boundary = request.mimetype_params.get("boundary", "")
        with rewound(body.stream):
            try:
                body.forms[how] = read_multipart(body.stream, boundary, *limits, files=files)
            except FormTooLong:
                raise
            except ValueError:
                body.forms[how] = None
    return body.forms[how]
