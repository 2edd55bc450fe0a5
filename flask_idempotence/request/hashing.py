"""The application's secrets, and the keyed hashes and signatures made with them."""

from __future__ import annotations

import hashlib
import hmac

from flask import Flask

from ..config.settings import Config
from ..errors import ConfigurationError

HASH_BYTES = 16
"""A keyed hash is cut to 128 bits: collisions cannot be searched for without the key."""

KEYSPACE = 2
"""The version of the keyspace, part of every store key: how keys are named and hashed."""

SHORT_HASH = 12
"""How many characters of a hash a log line shows."""


class Keyring:
    """Derives keys from the application's configuration, again whenever that has changed."""

    def __init__(self, config: Config) -> None:
        self._configured = config.hash_key
        self._prefix = f"{config.prefix}:{KEYSPACE}"
        self._prepared: tuple[str | bytes, _Hmac] | None = None

    def digest(self, app: Flask, message: bytes) -> bytes:
        secret, prepared = self._configured or _oldest_secret(app), self._prepared
        if prepared is None or prepared[0] != secret:
            key = hmac.digest(as_bytes(secret), b"flask-idempotence/hash", "sha256")
            prepared = self._prepared = secret, _Hmac(key)
        return prepared[1].digest(message)[:HASH_BYTES]

    def store_key(self, app: Flask, mode: str, part: str | None, name: bytes) -> str:
        return f"{self._prefix}:{mode}:{part}:{self.digest(app, name).hex()}"

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


def _oldest_secret(app: Flask) -> str | bytes:
    # Flask lists its fallbacks most recent first. The oldest one keeps the hashes as they are
    # while a secret is being rotated, until it is dropped from the list.
    fallbacks = app.config.get("SECRET_KEY_FALLBACKS")
    secret: str | bytes | None = fallbacks[-1] if fallbacks else app.secret_key
    if not secret:
        raise _no_secret()
    return secret


def _no_secret() -> ConfigurationError:
    return ConfigurationError(
        "Flask-Idempotence stores and compares keyed hashes and needs a key for them: set "
        "app.config['SECRET_KEY'], or app.config['IDEMPOTENCE_HASH_KEY'] before init_app."
    )


def as_bytes(secret: str | bytes) -> bytes:
    return secret.encode() if isinstance(secret, str) else secret


class _Hmac:
    """HMAC-SHA-256 with one key for many messages (RFC 2104), in half the time of `hmac`."""

    def __init__(self, key: bytes) -> None:
        block = key.ljust(64, b"\0")  # our keys are not longer than a block
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def digest(self, message: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()
