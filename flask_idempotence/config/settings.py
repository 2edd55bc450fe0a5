"""The settings: one table that the schema, the documentation and the engine read."""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from marshmallow import Schema, ValidationError, fields, validate

from ..errors import ConfigurationError
from .identity_defaults import COOKIES, HEADERS, SESSION_KEYS
from .misnamed import NAMESPACE, foreign_settings

SHORTEST_LEASE = 0.5
"""Seconds. A shorter lease could end before its first renewal has been answered."""

LONGEST = 1_000_000_000
"""Seconds; about 30 years. A server's clock has an end, too."""

IDENTITY = ("user", "session", "authorization", "credentials", "ip")
ON_REPEAT = ("replay", "reject")
GUARANTEES = AT_LEAST_ONCE, AT_MOST_ONCE = "at-least-once", "at-most-once"
REMEMBER = FINAL, SUCCESS = "final", "success"

CLOCK_SKEW = 30
"""Seconds by which the clocks of machines may differ."""

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.1

PLAIN_HEADER = re.compile(r"[!#$%&'+.^_`|~0-9A-Za-z-]+")
COOKIE_PATTERN = re.compile(r"(?=\**+.)[!#$%&'*+.^_`|~0-9A-Za-z-]+")

PLAIN_PATH = r"(?!.*//)/[^\s<>?#%\x00-\x1f\ud800-\udfff]*\Z"
FORM_FIELD = r"[^\x00-\x1f\ud800-\udfff]+\Z"

ON_STORE_ERROR = REJECT, ALLOW = "reject", "allow"
"""What may happen to a request when the store does not answer."""


class Duration(fields.Field):  # type: ignore[type-arg]  # generic since marshmallow 4 only
    """A length of time: seconds as a number, or a timedelta; becomes a float."""

    def __init__(self, *, allow_zero: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.allow_zero = allow_zero

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> float:
        del attr, data, kwargs
        return seconds(value, allow_zero=self.allow_zero)


def seconds(value: Any, *, allow_zero: bool = False) -> float:
    """Return a length of time as seconds.

    Args:
        value: a positive number of seconds, or a `timedelta`.
        allow_zero: whether it may be 0, too.

    Raises:
        ValidationError: it is neither, or not positive and finite.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValidationError("Must be a number of seconds or a timedelta.")
    if value == 0 and allow_zero:
        return 0.0
    if not 0 < value <= LONGEST:
        raise ValidationError(f"Must be more than 0 and at most {LONGEST:,} seconds.")
    return float(value)


class Names(fields.Field):  # type: ignore[type-arg]  # generic since marshmallow 4 only
    """A list or tuple of strings; becomes a tuple."""

    def __init__(
        self,
        *,
        choices: tuple[str, ...] = (),
        form: re.Pattern[str] | None = None,
        error: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.choices = choices
        self.form = form
        self.error = error

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> tuple[str, ...]:
        del attr, data, kwargs
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise ValidationError("Must be a list or tuple of strings.")
        if self.choices and not set(value) <= set(self.choices):
            raise ValidationError(f"May only hold {', '.join(map(repr, self.choices))}.")
        if self.form is not None and not all(map(self.form.fullmatch, value)):
            raise ValidationError(self.error)
        return tuple(value)


class EncryptionKeys(fields.Field):  # type: ignore[type-arg]  # generic since marshmallow 4 only
    """A list or tuple of Fernet keys, newest first; becomes a tuple of bytes."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> tuple[bytes, ...]:
        del attr, data, kwargs
        keys: list[Any] = list(value) if isinstance(value, list | tuple) else [None]
        if not all(isinstance(key, str | bytes) and _is_fernet_key(key) for key in keys):
            raise ValidationError(
                "Must be a list or tuple of keys, newest first, each made by "
                "cryptography.fernet.Fernet.generate_key()."
            )
        return tuple(key.encode() if isinstance(key, str) else key for key in keys)


def _is_fernet_key(key: str | bytes) -> bool:
    try:
        return len(base64.urlsafe_b64decode(key)) == 32
    except ValueError:
        return False


class Message(fields.Field):  # type: ignore[type-arg]  # generic since marshmallow 4 only
    """Anything with a `str()`, kept as it is, so that lazy translations stay lazy."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> Any:
        del attr, data, kwargs
        return value


class StorageUri(fields.Field):  # type: ignore[type-arg]  # generic since marshmallow 4 only
    """A string that is not empty."""

    default_error_messages = {  # noqa: RUF012 - as marshmallow declares it
        "null": "None is no URI. Is the variable set from which it is read? Leave the setting out "
        "for the memory of this process.",
        "empty": "An empty string is no URI. Is the variable set from which it is read? Leave the "
        "setting out for the memory of this process.",
        "type": "Must be a string, such as redis://localhost:6379/0. A client or a store of your "
        "own goes to Idempotence(app, store=...).",
    }

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> str:
        del attr, data, kwargs
        if not isinstance(value, str):
            raise self.make_error("type")
        if not value.strip():
            raise self.make_error("empty")
        return value


class Secret(fields.Field):  # type: ignore[type-arg]  # generic since marshmallow 4 only
    """A string or bytes of at least 16 characters; becomes bytes."""

    def _deserialize(self, value: Any, attr: Any, data: Any, **kwargs: Any) -> bytes:
        del attr, data, kwargs
        try:
            value = value.encode() if isinstance(value, str) else value
        except UnicodeEncodeError:  # it holds the value
            value = None
        if not isinstance(value, bytes) or len(value) < 16:
            raise ValidationError("Must be a string or bytes, 16 characters or more.")
        return value


def _setting(
    field: fields.Field[Any], default: Any, *, live: bool = False, secret: bool = False
) -> Any:
    metadata = {"field": field, "live": live, "secret": secret}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata, repr=not secret)
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


def _header(*, allow_none: bool = False) -> fields.String:
    error = "Must be the name of a header."
    known = validate.Regexp(HEADER_NAME.pattern + r"\Z", error=error)
    return fields.String(validate=known, allow_none=allow_none)


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of one application, validated and immutable.

    Field `lock_interval` is the setting `IDEMPOTENCE_LOCK_INTERVAL`, and so on. A field marked
    `live` is a toggle that is read from the application's configuration at request time; one
    marked `secret` may hold a password or key and is never shown.
    """

    enabled: bool = _setting(fields.Boolean(), True, live=True)
    storage_uri: str = _setting(StorageUri(), "memory://", secret=True)
    storage_options: Mapping[str, Any] = _setting(
        fields.Dict(keys=fields.String()), {}, secret=True
    )
    prefix: str = _setting(
        fields.String(
            validate=validate.Regexp(
                r"[A-Za-z0-9_.-]+\Z",
                error="Must consist of letters, digits, '_', '.' and '-'.",
            )
        ),
        "idempotence",
    )
    on_store_error: str = _setting(fields.String(validate=validate.OneOf(ON_STORE_ERROR)), REJECT)
    identity: tuple[str, ...] = _setting(Names(choices=IDENTITY), IDENTITY)
    identity_host: bool = _setting(fields.Boolean(), True)
    identity_session_keys: tuple[str, ...] = _setting(Names(), SESSION_KEYS)
    identity_headers: tuple[str, ...] = _setting(
        Names(form=PLAIN_HEADER, error="Must hold names of headers, without wildcards."), HEADERS
    )
    identity_cookies: tuple[str, ...] = _setting(
        Names(form=COOKIE_PATTERN, error="Must hold names of cookies; * stands for anything."),
        COOKIES,
    )
    ip_header: str | None = _setting(_header(allow_none=True), None)
    hash_key: bytes | None = _setting(Secret(allow_none=True), None, secret=True)
    ignored_args: tuple[str, ...] = _setting(Names(), ("csrf_token", "idempotence_token"))
    duplicate_status: int = _setting(
        fields.Integer(strict=True, validate=validate.Range(200, 599)), 409
    )
    problem_base: str = _setting(fields.String(), "urn:flask-idempotence:")
    lease: float = _setting(Duration(validate=validate.Range(min=SHORTEST_LEASE)), 30.0)
    max_hold: float = _setting(Duration(), 3600.0)
    token_enabled: bool = _setting(fields.Boolean(), True, live=True)
    token_url: str | None = _setting(
        fields.String(
            validate=validate.Regexp(
                PLAIN_PATH,
                error="Must be a plain path that begins with '/', without '//', '<', '?', '#' and "
                "'%', or None.",
            ),
            allow_none=True,
        ),
        "/token",
    )
    token_ttl: float = _setting(Duration(), 300)
    token_header: str = _setting(_header(), "Idempotence-Token")
    token_field: str = _setting(
        fields.String(
            validate=validate.Regexp(FORM_FIELD, error="Must be the name of a form field.")
        ),
        "idempotence_token",
    )
    lock_enabled: bool = _setting(fields.Boolean(), True, live=True)
    lock_interval: float = _setting(Duration(), 1.0)
    lock_message: Any = _setting(
        Message(), "This has just been submitted. Please do not submit it twice."
    )
    key_enabled: bool = _setting(fields.Boolean(), True, live=True)
    key_header: str = _setting(_header(), "Idempotency-Key")
    key_ttl: float = _setting(Duration(), 86400)
    key_required: bool = _setting(fields.Boolean(), False)
    key_all_routes: bool = _setting(fields.Boolean(), False)
    key_methods: tuple[str, ...] = _setting(
        Names(choices=("POST", "PUT", "PATCH", "DELETE")), ("POST", "PATCH")
    )
    key_on_repeat: str = _setting(fields.String(validate=validate.OneOf(ON_REPEAT)), "replay")
    key_guarantee: str = _setting(
        fields.String(validate=validate.OneOf(GUARANTEES)), "at-least-once"
    )
    key_remember: str = _setting(fields.String(validate=validate.OneOf(REMEMBER)), FINAL)
    key_wait: float = _setting(Duration(allow_zero=True), 0.0)
    key_max_body: int = _setting(
        fields.Integer(strict=True, validate=validate.Range(min=0)), 1_048_576
    )
    key_encryption_keys: tuple[bytes, ...] = _setting(EncryptionKeys(), (), secret=True)


def setting_name(field_name: str) -> str:
    """Return the application's name of a setting: `lease` → `IDEMPOTENCE_LEASE`."""
    return NAMESPACE + field_name.upper()


SETTINGS: dict[str, dataclasses.Field[Any]] = {
    setting_name(field.name): field for field in dataclasses.fields(Config)
}
"""Every setting by its name in the application's configuration."""

SchemaOfSettings: type[Schema] = Schema.from_dict(
    {name: field.metadata["field"] for name, field in SETTINGS.items()},
    name="SchemaOfSettings",
)


def read_config(values: Mapping[str, Any]) -> Config:
    """Validate the settings found in an application's configuration.

    Args:
        values: the application's configuration; names outside `IDEMPOTENCE_` are passed over.

    Returns:
        All settings, defaults filled in.

    Raises:
        ConfigurationError: an unknown name or a bad value. The text names the setting and what
            is allowed, and never repeats the value, which may hold a password.
    """
    problems = list(foreign_settings(values, SETTINGS))
    try:
        loaded = SchemaOfSettings().load(
            {name: value for name, value in values.items() if name in SETTINGS}
        )
    except ValidationError as error:
        loaded, bad = {}, sorted(error.messages_dict.items())
        problems += [f"{name}: {' '.join(_sentences(problem))}" for name, problem in bad]
    if problems:
        raise ConfigurationError(" ".join(problems))
    config = Config(**{SETTINGS[name].name: value for name, value in loaded.items()})
    _check_together(config)
    return config


def _check_together(config: Config) -> None:
    if config.max_hold < config.lease:
        raise ConfigurationError(
            f"{setting_name('max_hold')} must not be less than {setting_name('lease')}."
        )
    if config.key_guarantee == AT_MOST_ONCE and config.on_store_error == ALLOW:
        raise ConfigurationError(
            f"{setting_name('key_guarantee')} is 'at-most-once', which cannot be kept while "
            f"{setting_name('on_store_error')} is 'allow': the view would run unguarded. Set it "
            "to 'reject', and give the routes of locks and tokens on_store_error='allow'."
        )
    if config.key_guarantee == AT_MOST_ONCE and config.key_remember != FINAL:
        raise ConfigurationError(
            f"{setting_name('key_guarantee')} is 'at-most-once', which remembers every response: "
            f"leave {setting_name('key_remember')} out."
        )


_CLEARER = {
    "Field may not be null.": "Must not be None.",
    "Not a valid boolean.": "Must be a boolean: True or False.",
    "Not a valid integer.": "Must be an integer.",
    "Not a valid mapping type.": "Must be a mapping.",
    "Not a valid string.": "Must be a string.",
}
"""Sentences of marshmallow's that do not say what is allowed, and ours in their place."""


def _sentences(problem: Any) -> list[str]:
    if isinstance(problem, Mapping):
        return [sentence for value in problem.values() for sentence in _sentences(value)]
    if isinstance(problem, list):
        return [sentence for value in problem for sentence in _sentences(value)]
    return [_CLEARER.get(str(problem), str(problem))]
