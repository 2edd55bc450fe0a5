"""What is being asked: one canonical text for all requests that mean the same.

The text is JSON, because it keeps apart what must be kept apart (`1`, `1.0` and `"1"`; an array's
order; where a value ends) in a form that others can compute too. Frozen test vectors guard it:
changing the text changes every store key.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flask.globals import request_ctx
from werkzeug.exceptions import HTTPException

from .body import body_of
from .forms import form_of
from .json_values import read_json

if TYPE_CHECKING:
    from flask import Request
    from werkzeug.datastructures import MultiDict


@dataclass(frozen=True, slots=True)
class Selection:
    """Which arguments count.

    Attributes:
        only: names that count, and no others; None for all. A body without names does not count
            then.
        ignored: names that do not count.
        files: whether uploaded files count, by their names and what is in them.
    """

    only: frozenset[str] | None = None
    ignored: frozenset[str] = frozenset()
    files: bool = False

    def of(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return those of the arguments that count."""
        if self.only is not None:
            arguments = {name: arguments[name] for name in self.only if name in arguments}
        if self.ignored.isdisjoint(arguments):
            return arguments
        return {name: value for name, value in arguments.items() if name not in self.ignored}


def canonical_request(request: Request, selection: Selection, *asker: str) -> bytes:
    """Return the canonical text of a request: method, endpoint, arguments and body.

    Args:
        request: the request.
        selection: which of its arguments count.
        asker: what else counts, and stands before it: the mode, and who asks.

    Uploaded files count where the selection says so. The view can still read the body. JSON that
    is nested too deep, ambiguous or longer than what is kept in memory counts by its bytes, and so
    does a form that is too long to be read field by field, or has a part without a name.

    Raises:
        HTTPException: the body cannot be read (too large, without a length, or the client
            disconnected).
        ConfigurationError: the application has read the body before, and not kept it.
    """
    asked = [
        *asker,
        request.method,
        request.endpoint,
        _path_arguments(request, selection),
        _query(request, selection) if request.query_string else {},
    ]
    try:
        return canonical(asked + _body(request, selection))
    except (ValueError, RecursionError):  # JSON that is none, ambiguous or too deep; some forms
        return canonical([*asked, "bytes", body_of(request).digest()])


def rule_of(request: Request) -> str:
    """Return the rule of a request's route: one endpoint may have several."""
    return "" if request.url_rule is None else request.url_rule.rule


def canonical(value: Any) -> bytes:
    """Return the canonical text of a value made of what JSON is made of.

    Raises:
        TypeError: it holds something else.
    """
    return _encode(value).encode("ascii")


def canonical_texts(*texts: str) -> bytes:
    """Return the same for a list of texts, which takes a fraction of the time."""
    return f"[{','.join(map(json.encoder.encode_basestring_ascii, texts))}]".encode("ascii")


_encode: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=True, sort_keys=True, separators=(",", ":")
).encode


_PLAIN = frozenset({str, int, float})


def _path_arguments(request: Request, selection: Selection) -> dict[str, Any]:
    rule, arguments = request.url_rule, request.view_args or {}
    if rule is not None and not rule.arguments <= arguments.keys():
        # A `url_value_preprocessor` took some out, as in Flask's own pattern for languages.
        arguments = {**_matched_again(request), **arguments}
    if not arguments:
        return {}
    return {
        name: value if type(value) in _PLAIN else _plain(request, name, value)
        for name, value in selection.of(arguments).items()
    }


def _matched_again(request: Request) -> dict[str, Any]:
    adapter: Any = request_ctx.url_adapter
    try:
        return dict(adapter.match(method=request.method)[1])
    except (AttributeError, HTTPException):  # no adapter, or routes of another kind
        return {"": request.path}


def _plain(request: Request, name: str, value: Any) -> Any:
    if isinstance(value, UUID):
        return ["uuid", value.hex]
    # An object of the application's: its own text may be a title that others have, too, or its
    # place in memory. That of its converter may be made from it.
    text = _texts_in_path(request).get(name)
    return ["path", request.path] if text is None else ["url", text]


def _texts_in_path(request: Request) -> dict[str, str]:
    """Return the path arguments as they stand in the path; none where that is not certain."""
    rule: Any = request.url_rule
    pattern, names = "", []
    try:
        for is_argument, part in rule._trace:  # noqa: SLF001 - werkzeug has no other way to it
            if is_argument:
                names.append(part)
                pattern += f"(?P<_{len(names)}>{rule._converters[part].regex})"  # noqa: SLF001
            elif part == "|":  # so far it was the host
                pattern, names = "", []
            else:
                pattern += re.escape(part)
        found = re.fullmatch(f"{pattern}/?", request.path)
    except (AttributeError, KeyError, TypeError, re.error):
        return {}
    return {name: found[f"_{n}"] for n, name in enumerate(names, 1)} if found else {}


def _body(request: Request, selection: Selection) -> list[Any]:
    form = form_of(request, files=selection.files)
    if form is not None:
        fields, files = selection.of(form.fields), selection.of(form.files)
        if None in fields or None in files:
            raise ValueError("a part without a name, which JSON would take for one named 'null'")
        return ["form", fields, *(["files", files] if files else ())]
    body = body_of(request)
    if not body.size:
        return []
    if request.is_json and body.data is not None:
        kind, value = read_json(body.data, request.json_module.loads)
        return [kind, _named(value, selection)]
    if selection.only is not None and not request.is_json:
        return []
    return ["bytes", body.digest()]


def _named(value: Any, selection: Selection) -> Any:
    if isinstance(value, dict):
        return selection.of(value)
    return None if selection.only is not None else value


def _query(request: Request, selection: Selection) -> dict[str, Any]:
    try:
        return selection.of(_lists(request.args))
    except UnicodeDecodeError:  # bytes that are no text, and that nobody has escaped
        return {"": hashlib.sha256(request.query_string).hexdigest()}


def _lists(values: MultiDict[str, str]) -> dict[str, Any]:
    return dict(values.lists())


@functools.lru_cache(maxsize=1024)
def selection_of(
    only: frozenset[str] | None,
    ignore: frozenset[str],
    ignored: tuple[str, ...],
    *,
    files: bool = False,
) -> Selection:
    """Combine a route's `only` and `ignore` with the setting's ignored arguments."""
    return Selection(only=only, ignored=ignore.union(ignored), files=files)
