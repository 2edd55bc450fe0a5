"""The settings: one table, from which the schema, the commands and the engine read."""

from __future__ import annotations

import base64
import dataclasses
import logging
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Literal, get_args

from marshmallow import ValidationError, fields, validate

from ..errors import SLUGS

NAMESPACE = "IDEMPOTENCE_"

SHORTEST_LEASE = 0.5  # seconds

_SHORT_LEASE = (
    f"Must be {SHORTEST_LEASE} seconds or more: a shorter lease may end before its first renewal "
    "has been answered."
)

LONGEST = 1_000_000_000  # seconds, about 30 years: a server's clock has an end, too
CLOCK_SKEW = 30  # seconds by which the clocks of machines may differ

OnStoreError = Literal["reject", "allow"]
OnRepeat = Literal["replay", "reject"]
Guarantee = Literal["at-least-once", "at-most-once"]
Remember = Literal["final", "success"]

IDENTITY = ("user", "session", "authorization", "credentials", "ip")

KEY_IN_PROGRESS = "key-in-progress"

KEY_REUSED = "key-reused"

# Refusals that need no further attempt; a single `IDEMPOTENCE_DUPLICATE_STATUS` is for these.
DUPLICATES = ("repeat-submit", "token-spent", "key-repeated")

# Refusals of requests that have been sent before.
REPEATS = frozenset({*DUPLICATES, KEY_IN_PROGRESS, "outcome-unknown", "response-not-stored"})

_SESSION_KEYS = (
    *("_user_id", "user_id", "uid", "username", "user", "account_id", "email", "sub"),
    "identity.id",  # Flask-Principal's
)
_HEADERS = (
    *("X-Api-Key", "Api-Key", "X-Auth-Token", "X-Access-Token", "X-Session-Token"),
    # Users whom a proxy has authenticated.
    *("X-Forwarded-User", "X-Forwarded-Email", "X-Remote-User", "Remote-User"),
    *("X-Auth-Request-User", "Cf-Access-Authenticated-User-Email", "X-Amzn-Oidc-Identity"),
    *("X-Goog-Authenticated-User-ID", "X-MS-Client-Principal-ID", "X-User-ID"),
    # Accounts that a user chooses.
    *("Stripe-Account", "X-Tenant-ID", "X-Account-ID", "X-Organization-ID"),
)
_COOKIES = (
    *("access_token_cookie", "refresh_token_cookie", "*jwt*", "token", "*_token", "*-token"),
    *("session_id", "sessionid", "sid", "connect.sid", "JSESSIONID", "PHPSESSID"),
)

_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110, section 5.1
_PLAIN_HEADER = r"[!#$%&'+.^_`|~0-9A-Za-z-]+"
_COOKIE_PATTERN = r"(?=\**+.)[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PLAIN_PATH = r"(?!.*//)/[^\s<>?#%\x00-\x1f\ud800-\udfff]*"
_FORM_FIELD = r"[^\x00-\x1f\ud800-\udfff]+"


def seconds(value: object, *, allow_zero: bool = False) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValidationError("Must be a number of seconds or a timedelta.")
    if value == 0 and allow_zero:
        return 0.0
    if not 0 < value <= LONGEST:
        least = "0 or more" if allow_zero else "more than 0"
        raise ValidationError(f"Must be {least} and at most {LONGEST:,} seconds.")
    return float(value)


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValidationError("Must be a list or tuple of strings.")
    return tuple(value)


def _uri(value: object) -> str:
    if not isinstance(value, str):
        raise ValidationError(
            "Must be a string, such as redis://localhost:6379/0. Pass a client or a store of your "
            "own as Idempotence(app, store=...)."
        )
    if not value.strip():
        raise ValidationError(f"An empty string {_NO_URI}")
    return value


_NO_URI = (
    "is not a URI. Set the environment variable that it comes from, or leave the setting out for "
    "the memory of this process."
)


def _secret(value: object) -> bytes:
    try:
        value = value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError:  # its text holds the secret
        value = None
    if not isinstance(value, bytes) or len(value) < 16:
        raise ValidationError("Must be a string or bytes, 16 characters or more.")
    return value


def _fernet_keys(value: object) -> tuple[bytes, ...]:
    if isinstance(value, list | tuple):
        with suppress(TypeError, ValueError):
            if all(len(base64.urlsafe_b64decode(key)) == 32 for key in value):
                return tuple(key.encode() if isinstance(key, str) else key for key in value)
    raise ValidationError(
        "Must be a list or tuple of keys, newest first, each made by "
        "cryptography.fernet.Fernet.generate_key()."
    )


def key_pattern(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValidationError("Must be a string with a regular expression.")
    try:
        re.compile(value, re.ASCII)
        re.compile(allowing_quotes(value))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValidationError(f"{value!r} is no regular expression: {error}.") from None
    return value


def allowing_quotes(pattern: str) -> str:
    """Return the regular expression of a header's value whose key matches a pattern."""
    return f'^"?(?:{pattern})"?$'


def _message(value: object) -> object:
    if isinstance(value, str):
        is_text = bool(value.strip()) and not any("\ud800" <= each <= "\udfff" for each in value)
    else:  # numbers, collections and functions have the `str()` of all objects
        is_text = type(value).__str__ is not object.__str__ and not isinstance(
            value, bytes | bytearray
        )
    if not is_text:
        raise ValidationError(
            "Must be a text: a string that is not blank, or a lazy one with a str() of its own."
        )
    return value


def _duplicate_status(value: object) -> object:
    return (_STATUSES if isinstance(value, Mapping) else _STATUS).deserialize(value)


def _log_level(value: object) -> int | str:
    levels = logging.getLevelNamesMapping()
    if isinstance(value, str) and value.upper() in levels:
        return value.upper()
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValidationError(f"Must be the name of a level ({', '.join(levels)}), or its number.")
    return value


_Names = partial(fields.Function, None, _names)
_Duration = partial(fields.Function, None, lambda value: seconds(value))  # noqa: PLW0108 - one parameter: to two, marshmallow 3 passes a context
_Wait = partial(fields.Function, None, lambda value: seconds(value, allow_zero=True))


def _text(pattern: str, error: str, *, allow_none: bool = False) -> fields.String:
    known = validate.Regexp(rf"{pattern}\Z", error=error)
    return fields.String(validate=known, allow_none=allow_none, error_messages={"invalid": error})


_Header = partial(_text, _HEADER, "Must be the name of a header.")


def _one_of(choices: Collection[str]) -> fields.String:
    error = f"Must be one of {', '.join(map(repr, choices))}."
    known = validate.OneOf(choices, error=error)
    return fields.String(validate=known, error_messages={"invalid": error})


def _some_of(choices: Collection[str]) -> fields.Function:
    error = f"May only hold {', '.join(map(repr, choices))}."
    return _Names(validate=validate.ContainsOnly(choices, error=error))


def _names_like(pattern: str, error: str) -> fields.Function:
    def check(names: tuple[str, ...]) -> None:
        if not all(re.fullmatch(pattern, name) for name in names):
            raise ValidationError(error)

    return _Names(validate=check)


def _reused(statuses: Mapping[str, int]) -> None:
    if statuses.get(KEY_REUSED, 422) < 400:  # the request was not carried out, and never will be
        raise ValidationError({KEY_REUSED: ["Must be the status of an error, from 400 to 599."]})


_STATUS = fields.Integer(
    strict=True, validate=validate.Range(200, 599, error="A status must be from 200 to 599.")
)
_STATUSES = fields.Dict(
    keys=_one_of((*DUPLICATES, KEY_IN_PROGRESS, KEY_REUSED)), values=_STATUS, validate=_reused
)


def _setting(
    field: fields.Field[Any], default: object, *, live: bool = False, secret: bool = False
) -> Any:
    metadata = {"field": field, "live": live, "secret": secret}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata, repr=not secret)
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


@dataclasses.dataclass(frozen=True, eq=False)
class Config:
    """All settings of one application, validated and immutable.

    Field `lock_interval` is the setting `IDEMPOTENCE_LOCK_INTERVAL`, and so on. A field marked
    `live` is a toggle that is read from the application's configuration at request time; one
    marked `secret` may hold a password or key and is never shown.
    """

    enabled: bool = _setting(fields.Boolean(), True, live=True)
    observe: bool = _setting(fields.Boolean(), False, live=True)
    storage_uri: str = _setting(
        fields.Function(None, _uri, error_messages={"null": f"None {_NO_URI}"}),
        "memory://",
        secret=True,
    )
    storage_options: Mapping[str, object] = _setting(
        fields.Dict(keys=fields.String()), {}, secret=True
    )
    prefix: str = _setting(
        _text(r"[A-Za-z0-9_.-]+", "Must consist of letters, digits, '_', '.' and '-'."),
        "idempotence",
    )
    on_store_error: OnStoreError = _setting(_one_of(get_args(OnStoreError)), "reject")
    identity: tuple[str, ...] = _setting(_some_of(IDENTITY), IDENTITY)
    identity_host: bool = _setting(fields.Boolean(), True)
    identity_session_keys: tuple[str, ...] = _setting(_Names(), _SESSION_KEYS)
    identity_headers: tuple[str, ...] = _setting(
        _names_like(_PLAIN_HEADER, "Must hold names of headers, without wildcards."), _HEADERS
    )
    identity_cookies: tuple[str, ...] = _setting(
        _names_like(_COOKIE_PATTERN, "Must hold names of cookies; * stands for anything."),
        _COOKIES,
    )
    ip_header: str | None = _setting(_Header(allow_none=True), None)
    hash_key: bytes | None = _setting(
        fields.Function(None, _secret, allow_none=True), None, secret=True
    )
    ignored_args: tuple[str, ...] = _setting(_Names(), ("csrf_token", "idempotence_token"))
    messages: Mapping[str, object] = _setting(
        fields.Dict(keys=_one_of(SLUGS), values=fields.Function(None, _message)), {}
    )
    duplicate_status: int | Mapping[str, int] = _setting(
        fields.Function(None, _duplicate_status), 409
    )
    problem_base: str = _setting(fields.String(), "urn:flask-idempotence:")
    repeat_log_level: int | str = _setting(fields.Function(None, _log_level), "INFO")
    lease: float = _setting(
        _Duration(validate=validate.Range(min=SHORTEST_LEASE, error=_SHORT_LEASE)), 30.0
    )
    max_hold: float = _setting(_Duration(), 3600.0)
    token_enabled: bool = _setting(fields.Boolean(), True, live=True)
    token_url: str | None = _setting(
        _text(
            _PLAIN_PATH,
            "Must be a plain path that begins with '/', without '//', '<', '?', '#' and '%', or "
            "None.",
            allow_none=True,
        ),
        "/token",
    )
    token_ttl: float = _setting(_Duration(), 300)
    token_header: str = _setting(_Header(), "Idempotence-Token")
    token_field: str = _setting(
        _text(_FORM_FIELD, "Must be the name of a form field."), "idempotence_token"
    )
    lock_enabled: bool = _setting(fields.Boolean(), True, live=True)
    lock_interval: float = _setting(_Duration(), 1.0)
    lock_message: object = _setting(
        fields.Function(None, _message),
        "This has just been submitted. Please do not submit it twice.",
    )
    key_enabled: bool = _setting(fields.Boolean(), True, live=True)
    key_header: str = _setting(_Header(), "Idempotency-Key")
    key_ttl: float = _setting(_Duration(), 86400)
    key_required: bool = _setting(fields.Boolean(), False)
    key_pattern: str | None = _setting(fields.Function(None, key_pattern, allow_none=True), None)
    key_all_routes: bool = _setting(fields.Boolean(), False)
    key_methods: tuple[str, ...] = _setting(
        _some_of(("POST", "PUT", "PATCH", "DELETE")), ("POST", "PATCH")
    )
    key_on_repeat: OnRepeat = _setting(_one_of(get_args(OnRepeat)), "replay")
    key_guarantee: Guarantee = _setting(_one_of(get_args(Guarantee)), "at-least-once")
    key_remember: Remember = _setting(_one_of(get_args(Remember)), "final")
    key_wait: float = _setting(_Wait(), 0.0)
    key_max_body: int = _setting(
        fields.Integer(strict=True, validate=validate.Range(min=0)), 1_048_576
    )
    key_encryption_keys: tuple[bytes, ...] = _setting(
        fields.Function(None, _fernet_keys), (), secret=True
    )

    @property
    def repeat_level(self) -> int:
        """The number of the level at which repeats are logged."""
        level = self.repeat_log_level
        return level if isinstance(level, int) else logging.getLevelNamesMapping()[level]

    @cached_property
    def statuses(self) -> Mapping[str, int]:
        """The statuses that replace those of refusals, by slug."""
        given = self.duplicate_status
        return dict.fromkeys(DUPLICATES, given) if isinstance(given, int) else given


SETTINGS: dict[str, dataclasses.Field[Any]] = {
    NAMESPACE + field.name.upper(): field for field in dataclasses.fields(Config)
}
"""Every setting by its name in the application's configuration."""
