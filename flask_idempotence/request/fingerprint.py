"""Fingerprints: one canonical text for all equivalent requests, and its keyed hash.

The text is JSON, because it keeps apart what must be kept apart (`1`, `1.0` and `"1"`; an array's
order; where a value ends) in a form that others can compute too. Frozen test vectors guard it:
changing the text changes every store key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from flask import Flask, Request
from flask.json.provider import DefaultJSONProvider

from ..config.settings import Config
from ..errors import ConfigurationError
from .body import IN_MEMORY, body_of, digest_of
from .forms import FORMS, compared_form

# A keyed hash is cut to 128 bits: collisions cannot be searched for without the key.
HASH_BYTES = 16

KEYSPACE = 2  # the version of the keyspace, part of every store key: how keys are named and hashed
SHORT_HASH = 12  # how many characters of a hash a log line shows

_Arguments = Mapping[str, object]

_PLAIN = frozenset({str, int, float, UUID})


def _uuid(value: object) -> object:
    if isinstance(value, UUID):
        return ["uuid", value.hex]
    raise TypeError(f"{type(value).__name__} is no JSON")


# Without the check for cycles, which a JSON text cannot have: a sixth of the time.
canonical_json = json.JSONEncoder(
    check_circular=False, sort_keys=True, separators=(",", ":"), default=_uuid
).encode

# Bytes of the longest JSON that counts by its meaning; a longer one counts by its bytes.
# A client may send what takes longer to compare than to parse (`benchmarks/bodies.py` has how
# much). Where a route chooses arguments, which takes the meaning, the limit is that in memory.
LONGEST_JSON = 1 << 14


# Numbers with a fraction or an exponent that are read as doubles: comparing them takes long.
MOST_FRACTIONS = 256

_MARK = float("nan")
# A pair in a canonical text. In a string its quotes are escaped, and behind one comes no word.
_PAIR = re.compile(r'\[NaN,"([\w.+-]+)"\]', re.ASCII)
_CONSTANTS = ("NaN", "Infinity", "-Infinity")  # JSON has no such numbers, and Python reads them


class Selection(NamedTuple):
    """The arguments that count."""

    # Names that count, and no others; None for all. A body without names does not count then.
    only: frozenset[str] | None = None
    ignored: frozenset[str] = frozenset()
    files: bool = False  # whether uploaded files count, by their names and contents
    longest_json: int = LONGEST_JSON

    @classmethod
    def by_route(
        cls,
        config: Config,
        only: frozenset[str] | None,
        ignore: frozenset[str] | None,
        *,
        files: bool = False,
    ) -> Selection:
        ignored = frozenset(ignore or ()).union(config.ignored_args)
        is_chosen = only is not None or bool(ignore)
        return cls(only, ignored, files, IN_MEMORY if is_chosen else LONGEST_JSON)

    def of(self, arguments: _Arguments) -> _Arguments:
        if self.only is not None:
            arguments = {name: arguments[name] for name in self.only if name in arguments}
        if self.ignored.isdisjoint(arguments):
            return arguments
        return {name: value for name, value in arguments.items() if name not in self.ignored}


def canonical_request(request: Request, selection: Selection, *scope: str) -> bytes:
    """Return the canonical text of a request: its scope, method, endpoint, arguments and body.

    The view can still read the body. JSON that is nested too deep, ambiguous or longer than its
    limit counts by its bytes, and so does a form that is not plainly one, is beyond a
    limit, or has a part without a name.
    """
    query: _Arguments = {}
    if request.query_string:
        try:
            query = selection.of(dict(request.args.lists()))
        except UnicodeDecodeError:  # bytes that are no text, and are not escaped
            query = {"": hashlib.sha256(request.query_string).hexdigest()}
    path = _path_arguments(request, selection)
    asked = canonical_json([*scope, request.method, request.endpoint, path, query])
    try:
        body = _body(request, selection)
    except (ValueError, RecursionError):  # invalid, ambiguous or too deep JSON; some forms
        body = _by_bytes(request)
    return f"{asked[:-1]}{body}]".encode("ascii")


def rule_of(request: Request) -> str:
    # One endpoint may have several.
    return "" if request.url_rule is None else request.url_rule.rule


def canonical(value: object) -> bytes:
    return canonical_json(value).encode("ascii")


def _path_arguments(request: Request, selection: Selection) -> _Arguments:
    rule, arguments = request.url_rule, request.view_args or {}
    found = {**selection.of(arguments)}
    for name, value in found.items():
        if type(value) not in _PLAIN:
            # The text of an application's object may be a title that others share, or its place
            # in memory; that of its converter may be made from it.
            found[name] = ["path", request.path]
    if rule is not None and not rule.arguments <= arguments.keys():
        # A `url_value_preprocessor` took some out, as in Flask's own pattern for languages.
        found[""] = request.path
    return found


def _body(request: Request, selection: Selection) -> str:
    """Return the last elements of the text, each with a comma before it."""
    form = compared_form(request, files=selection.files) if request.mimetype in FORMS else None
    if form is not None:
        fields, files = selection.of(form.fields), selection.of(form.files)
        if None in fields or None in files:
            raise ValueError("a part without a name, which JSON would take for one named 'null'")
        return _elements("form", fields, *(["files", files] if files else ()))
    body = body_of(request)
    if not body.size:
        return ""
    if request.is_json and body.data is not None and body.size <= selection.longest_json:
        return _json(request, body.data, selection)
    if selection.only is not None and not request.is_json:
        return ""
    return _by_bytes(request)


def _json(request: Request, data: bytes, selection: Selection) -> str:
    kind, value, colons = read_json(data)
    if kind == "json":
        offer_json(request, data, value)
    counted: object = value
    rest: object = None
    if isinstance(value, dict):
        counted = selection.of(value)
        if counted is not value:
            rest = {name: value[name] for name in value.keys() - counted.keys()}
    elif selection.only is not None:
        counted, rest = None, value
    text = canonical_json(counted)
    if rest is not None:
        colons -= canonical_json(rest).count(":")
        if kind == "exact":  # perhaps by a number that is left out
            with suppress(_UnusualNumber):
                kind, text = "json", _with_doubles(text)
    if text.count(":") != colons:
        raise ValueError("An object has two values of one name.")
    return f',"{kind}",{text}'


def _by_bytes(request: Request) -> str:
    return _elements("bytes", digest_of(body_of(request).stream))


def _elements(*values: object) -> str:
    return f",{canonical_json(values)[1:-1]}"


def read_json(data: bytes) -> tuple[str, object, int]:
    """Return the kind and the value of a JSON text, and the number of its colons.

    The kind is `"json"` where the value is what `json.loads` returns, and is written again as it
    was. Else it is `"exact"`: a number with a fraction or an exponent is then a pair of NaN and a
    text. The colons are as many as in the canonical text, unless an object has a name twice.
    """
    encoding = "utf-8" if data.startswith(b'{"') else json.detect_encoding(data)
    text = data.decode(encoding)  # a pair of surrogates is not the character that it stands for
    colons = text.count(":")
    if "\\u003" in text:  # colons may be escaped, and so may the backslash before `u003a`
        plain = text.replace(r"\\", "")
        colons += plain.count(r"\u003a") + plain.count(r"\u003A")
    try:
        return "json", _reader(text)(text), colons
    except _UnusualNumber:
        return "exact", _read_as_written(text), colons


class _UnusualNumber(Exception):
    """A number that a double would not be written as, or not be equal to; or one too many."""


def _double(text: str) -> float:
    if repr(value := float(text)) != text:
        raise _UnusualNumber
    return value


def _reader(text: str) -> Callable[[str], object]:
    if len(text) < 4 * MOST_FRACTIONS:
        return _read
    return json.JSONDecoder(parse_float=_doubles_up_to(MOST_FRACTIONS)).decode


def _doubles_up_to(most: int) -> Callable[[str], float]:
    left = iter(range(most))

    def double(number: str) -> float:
        if next(left, None) is None:
            raise _UnusualNumber
        return _double(number)

    return double


def _with_doubles(text: str) -> str:
    """Return a canonical text with doubles in place of the pairs that `_written` has made."""
    double = _doubles_up_to(MOST_FRACTIONS)

    def plain(pair: re.Match[str]) -> str:
        if pair[1] not in _CONSTANTS:
            double(pair[1])
        return pair[1]

    return _PAIR.sub(plain, text)


def _written(text: str) -> tuple[float, str]:
    return _MARK, text


_read = json.JSONDecoder(parse_float=_double).decode
_read_as_written = json.JSONDecoder(parse_float=_written, parse_constant=_written).decode


class _Parsed:
    """In place of a request's `json_module`: returns the value of a body that was parsed."""

    def __init__(self, module: DefaultJSONProvider, data: bytes, value: object) -> None:
        self._module = module
        self._known = [(data, value)]

    def loads(self, data: str | bytes, **options: Any) -> object:
        # Once: the view may alter what it gets.
        if self._known and not options and data == self._known[0][0]:
            return self._known.pop()[1]
        return self._module.loads(data, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def offer_json(request: Request, data: bytes, value: object) -> None:
    """Let `request.get_json()` return the value of a body, where the application uses Flask's."""
    module = request.json_module
    is_flasks = getattr(type(module), "loads", None) is DefaultJSONProvider.loads
    if is_flasks and "loads" not in vars(module):
        request.json_module = _Parsed(module, data, value)


class Keyring:
    """Derives keys from the application's configuration, again whenever that has changed."""

    def __init__(self, config: Config) -> None:
        self._configured = config.hash_key
        self._prefix = f"{config.prefix}:{KEYSPACE}"
        self._prepared: tuple[str | bytes, hmac.HMAC] | None = None

    def digest(self, app: Flask, message: bytes) -> bytes:
        secret: str | bytes | None = self._configured
        if secret is None:
            # Flask lists its fallbacks most recent first. The oldest one keeps the hashes as they
            # are while a secret is being rotated, until it is dropped from the list.
            fallbacks = app.config.get("SECRET_KEY_FALLBACKS")
            secret = fallbacks[-1] if fallbacks else app.secret_key
        prepared = self._prepared
        if prepared is None or prepared[0] != secret:
            if not secret:
                raise _no_secret()
            key = hmac.digest(as_bytes(secret), b"flask-idempotence/hash", "sha256")
            prepared = self._prepared = secret, hmac.new(key, digestmod="sha256")
        keyed = prepared[1].copy()  # in half the time of `hmac.digest`
        keyed.update(message)
        return keyed.digest()[:HASH_BYTES]

    def store_key(
        self, app: Flask, mode: str, part: str | None, name: bytes, *, below: str = ""
    ) -> str:
        """Return PREFIX:KEYSPACE:MODE:PART:HASH; the hash is a keyed one of the name."""
        digest = self.digest(app, name).hex()
        if below:  # a step: its hash begins as its operation's, by which forget() finds it
            digest = half_of(below) + digest[:HASH_BYTES]
        return f"{self._prefix}:{mode}:{part}:{digest}"

    def subject(self, app: Flask, bearer: str) -> bytes:
        """Return the keyed hash of a token's bearer; empty for a guest."""
        if not bearer:
            return b""
        return self.digest(app, f"subject {bearer}".encode("utf-8", "surrogatepass"))

    def secrets(self, app: Flask) -> tuple[str | bytes, ...]:
        """Return the secrets for signatures, oldest first: the last one signs, all are good."""
        newest = app.secret_key or self._configured
        if newest is None:
            raise _no_secret()
        return (*reversed(app.config.get("SECRET_KEY_FALLBACKS") or ()), newest)


def _no_secret() -> ConfigurationError:
    return ConfigurationError(
        "Flask-Idempotence stores and compares keyed hashes and needs a key for them: set "
        "app.config['SECRET_KEY'], or app.config['IDEMPOTENCE_HASH_KEY'] before init_app."
    )


def half_of(key: str) -> str:
    """Return the first half of the hash in a store key."""
    return key.rpartition(":")[2][:HASH_BYTES]


def as_bytes(secret: str | bytes) -> bytes:
    return secret.encode() if isinstance(secret, str) else secret
