"""What is being asked: one canonical text for all requests that mean the same.

The text is JSON, because it keeps apart what must be kept apart (`1`, `1.0` and `"1"`; an array's
order; where a value ends) in a form that others can compute too. Frozen test vectors guard it:
changing the text changes every store key.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from .errors import ConfigurationError

if TYPE_CHECKING:
    from flask import Request
    from werkzeug.datastructures import MultiDict

_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which arguments count.

    Attributes:
        only: names that count, and no others; None for all. A body without names does not count
            then.
        ignored: names that do not count.
    """

    only: frozenset[str] | None = None
    ignored: frozenset[str] = frozenset()

    def of(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return those of the arguments that count."""
        if self.only is not None:
            arguments = {name: arguments[name] for name in self.only if name in arguments}
        if self.ignored.isdisjoint(arguments):
            return arguments
        return {name: value for name, value in arguments.items() if name not in self.ignored}


def canonical_request(request: Request, selection: Selection) -> bytes:
    """Return the canonical text of a request: method, endpoint, arguments and body.

    Uploaded files are left out. The body stays readable for the view, in every way but one: of a
    multipart body, the view gets the parsed fields and files, not the raw bytes.

    Raises:
        HTTPException: the body cannot be read (too large, or the client went away).
        ConfigurationError: somebody else has read the body and left nothing of it.
    """
    asked = [
        request.method,
        request.endpoint,
        _path_arguments(request, selection),
        selection.of(_lists(request.args)) if request.query_string else {},
    ]
    return (_encode(asked) + _body(request, selection)).encode("ascii")


def canonical(value: Any) -> bytes:
    """Return the canonical text of a value made of what JSON is made of.

    Raises:
        TypeError: it holds something else.
    """
    return _encode(value).encode("ascii")


_encode: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=True, sort_keys=True, separators=(",", ":")
).encode


def _path_arguments(request: Request, selection: Selection) -> dict[str, Any]:
    arguments = request.view_args
    if not arguments:
        return {}
    return {
        name: value if type(value) in _PLAIN else _plain(request, value)
        for name, value in selection.of(arguments).items()
    }


_PLAIN = frozenset({str, int, float})


def _plain(request: Request, value: Any) -> Any:
    if isinstance(value, UUID):
        return ["uuid", value.hex]
    # What an application's own converter made of it is unknown here: the address stands for it.
    return ["path", request.path]


def _body(request: Request, selection: Selection) -> str:
    mimetype = request.mimetype
    if mimetype == _MULTIPART:
        return _encode(["form", selection.of(_lists(request.form))])
    data = request.get_data(cache=True)
    try:
        if mimetype == _FORM:
            return _encode(["form", selection.of(_lists(request.form))])
        if not data:
            return _empty(request)
        if request.is_json:
            return _json_body(request, data, selection)
        return _raw_body(data, selection)
    finally:
        # Whoever reads the stream instead of the data finds it at its beginning.
        vars(request)["stream"] = io.BytesIO(data)


def _empty(request: Request) -> str:
    if request.content_length:
        raise ConfigurationError(
            f"The body of a request to {request.endpoint!r} was read before its guard could see "
            "it. Read it with request.get_data(), which keeps it, or give the guard a key=."
        )
    return "[]"


def _json_body(request: Request, data: bytes, selection: Selection) -> str:
    try:
        value = request.get_json(silent=True)
        if value is not None:
            return _encode(["json", _named(value, selection)])
    except (TypeError, ValueError, RecursionError):
        pass  # the application's own JSON provider makes objects, or the nesting is too deep
    try:
        return _encode(["json", _named(json.loads(data), selection)])
    except (ValueError, RecursionError):
        return _raw_body(data, selection)


def _named(value: Any, selection: Selection) -> Any:
    if isinstance(value, dict):
        return selection.of(value)
    return None if selection.only is not None else value


def _raw_body(data: bytes, selection: Selection) -> str:
    if selection.only is not None:
        return "[]"
    return _encode(["bytes", hashlib.sha256(data).hexdigest()])


def _lists(values: MultiDict[str, str]) -> dict[str, Any]:
    return dict(values.lists())


def names(values: Iterable[str] | str) -> frozenset[str]:
    """Return argument names as a set; one name may stand alone."""
    return frozenset((values,) if isinstance(values, str) else values)


def selection_of(
    only: Collection[str] | str | None, ignore: Collection[str] | str, ignored: Collection[str]
) -> Selection:
    """Combine a route's `only` and `ignore` with the setting's ignored arguments."""
    return Selection(
        only=None if only is None else names(only), ignored=names(ignore) | names(ignored)
    )
