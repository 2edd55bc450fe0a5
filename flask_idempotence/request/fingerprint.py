"""Fingerprints: one canonical text for all equivalent requests.

The text is JSON, because it keeps apart what must be kept apart (`1`, `1.0` and `"1"`; an array's
order; where a value ends) in a form that others can compute too. Frozen test vectors guard it:
changing the text changes every store key.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple, NoReturn
from uuid import UUID

from .body import body_of, offer_json
from .forms import FORMS, bytes_of, compared_form
from .proxies import matched_again

if TYPE_CHECKING:
    from flask import Request

_Arguments = Mapping[str, object]

_PLAIN = frozenset({str, int, float})

_SURE_LENGTH = 16
"""15 digits and a point: so many come back from a double as they were."""


class Selection(NamedTuple):
    """The arguments that count.

    Attributes:
        only: names that count, and no others; None for all. A body without names does not count
            then.
        ignored: names that do not count.
        files: whether uploaded files count, by their names and contents.
    """

    only: frozenset[str] | None = None
    ignored: frozenset[str] = frozenset()
    files: bool = False

    def of(self, arguments: _Arguments) -> _Arguments:
        if self.only is not None:
            arguments = {name: arguments[name] for name in self.only if name in arguments}
        if self.ignored.isdisjoint(arguments):
            return arguments
        return {name: value for name, value in arguments.items() if name not in self.ignored}


@functools.lru_cache(maxsize=1024)
def selection_of(
    only: frozenset[str] | None,
    ignore: frozenset[str],
    ignored: tuple[str, ...],
    *,
    files: bool = False,
) -> Selection:
    return Selection(only=only, ignored=ignore.union(ignored), files=files)


def canonical_request(request: Request, selection: Selection, *sender: str) -> bytes:
    """Return the canonical text of a request: method, endpoint, arguments and body.

    The view can still read the body. JSON that is nested too deep, ambiguous or longer than the
    limit in memory counts by its bytes, and so does a form that is not plainly one, is beyond a
    limit, or has a part without a name.
    """
    asked = [
        *sender,
        request.method,
        request.endpoint,
        _path_arguments(request, selection),
        _query(request, selection) if request.query_string else {},
    ]
    try:
        return canonical(asked + _body(request, selection))
    except (ValueError, RecursionError):  # invalid, ambiguous or too deep JSON; some forms
        return canonical(asked + bytes_of(request))


def rule_of(request: Request) -> str:
    """Return the rule of a request's route: one endpoint may have several."""
    return "" if request.url_rule is None else request.url_rule.rule


def canonical(value: object) -> bytes:
    return "".join(_encode(value, 0)).encode("ascii")


def canonical_texts(*texts: str) -> bytes:
    """Return the same for a list of texts, which takes a fraction of the time."""
    return f"[{','.join(map(json.encoder.encode_basestring_ascii, texts))}]".encode("ascii")


def _make_encoder() -> Callable[[object, int], Iterable[str]]:
    """Return a function that yields the canonical text of a value in pieces.

    The encoder of `json` makes this again for each value, which takes as long as its use.
    """
    encoder = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # an interpreter other than CPython
        return lambda value, _: encoder.iterencode(value)
    text = json.encoder.encode_basestring_ascii
    made: Callable[[object, int], Iterable[str]] = make(
        None, encoder.default, text, None, ":", ",", True, False, True
    )
    return made


_encode = _make_encoder()


def _path_arguments(request: Request, selection: Selection) -> _Arguments:
    rule, arguments = request.url_rule, request.view_args or {}
    if rule is not None and not rule.arguments <= arguments.keys():
        # A `url_value_preprocessor` took some out, as in Flask's own pattern for languages.
        arguments = {**matched_again(request), **arguments}
    if not arguments:
        return {}
    return {
        name: value if type(value) in _PLAIN else _plain(request, name, value)
        for name, value in selection.of(arguments).items()
    }


def _plain(request: Request, name: str, value: object) -> list[str]:
    if isinstance(value, UUID):
        return ["uuid", value.hex]
    # The text of an application's object may be a title that others share, or its place in
    # memory; that of its converter may be made from it.
    text = _texts_in_path(request).get(name)
    return ["path", request.path] if text is None else ["url", text]


def _texts_in_path(request: Request) -> dict[str, str]:
    """Return the path arguments as the path has them; none where that is not certain."""
    rule = request.url_rule
    if rule is None:
        return {}
    pattern, names = "", []
    try:
        for is_argument, part in rule._trace:  # noqa: SLF001 - werkzeug has no other way to it
            if is_argument:
                names.append(part)
                pattern += f"(?P<_{len(names)}>{rule._converters[part].regex})"  # noqa: SLF001 - no public name
            elif part == "|":  # so far it was the host
                pattern, names = "", []
            else:
                pattern += re.escape(part)
        found = re.fullmatch(f"{pattern}/?", request.path)
    except (AttributeError, KeyError, TypeError, re.error):
        return {}
    return {name: found[f"_{n}"] for n, name in enumerate(names, 1)} if found else {}


def _body(request: Request, selection: Selection) -> list[object]:
    form = compared_form(request, files=selection.files) if request.mimetype in FORMS else None
    if form is not None:
        fields, files = selection.of(form.fields), selection.of(form.files)
        if None in fields or None in files:
            raise ValueError("a part without a name, which JSON would take for one named 'null'")
        return ["form", fields, *(["files", files] if files else ())]
    body = body_of(request)
    if not body.size:
        return []
    if request.is_json and body.data is not None:
        kind, value = _read_json(body.data, request.json_module.loads)
        if kind == "json":
            offer_json(request, body, value)
        if isinstance(value, dict):
            return [kind, selection.of(value)]
        return [kind, None if selection.only is not None else value]
    if selection.only is not None and not request.is_json:
        return []
    return [*bytes_of(request)]


def _query(request: Request, selection: Selection) -> _Arguments:
    try:
        return selection.of(dict(request.args.lists()))
    except UnicodeDecodeError:  # bytes that are no text, and are not escaped
        return {"": hashlib.sha256(request.query_string).hexdigest()}


def _read_json(data: bytes, loads: Callable[[str], object]) -> tuple[str, object]:
    """Return the kind and the value of a JSON text.

    The kind is `"json"` where all numbers are exact as integers and doubles, and their spelling
    means nothing to the application. Else it is `"exact"`: numbers with a fraction or an exponent
    are texts then, and marked.
    """
    encoding = "utf-8" if data.startswith(b'{"') else json.detect_encoding(data)
    text = data.decode(encoding, "surrogatepass")
    try:
        return "json", _read(text)
    except _FractionError:
        pass
    if _reads_doubles(loads):
        try:
            return "json", _read_doubles(text)
        except _InexactError:
            pass
    return "exact", _marked(_read_as_written(text))


class _FractionError(Exception):
    """A number has a fraction or an exponent."""


class _InexactError(Exception):
    """A number is not equal to the double that would represent it."""


class _Written(str):
    """A number as it is written."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("An object has two values of one name.")
    return value


def _refuse(_: str) -> NoReturn:
    raise _FractionError


def _double(text: str) -> float:
    value = float(text)
    if len(text) > _SURE_LENGTH or "e" in text or "E" in text:
        try:
            is_exact = math.isfinite(value) and Decimal(text) == Decimal(repr(value))
        except ArithmeticError:  # an exponent that no decimal has
            is_exact = False
        if not is_exact:
            raise _InexactError
    return value


def _reads_doubles(loads: Callable[[str], object]) -> bool:
    try:
        return type(loads("1.5")) is float
    except Exception:  # noqa: BLE001 - it is the application's
        return False


def _marked(value: object) -> object:
    if isinstance(value, dict):
        return {name: _marked(item) for name, item in value.items()}
    if isinstance(value, list):
        return ["list", *map(_marked, value)]
    return ["number", str(value)] if isinstance(value, _Written) else value


_read = json.JSONDecoder(object_pairs_hook=_object, parse_float=_refuse).decode
_read_doubles = json.JSONDecoder(object_pairs_hook=_object, parse_float=_double).decode
_read_as_written = json.JSONDecoder(object_pairs_hook=_object, parse_float=_Written).decode
