"""One-time tokens: signed when issued, checked when they come back.

The store holds a token for its lifetime; the engine puts it there and takes it out.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from flask import Flask, Request
from itsdangerous import BadSignature, TimestampSigner
from itsdangerous.signer import SigningAlgorithm

from ..config.settings import Config
from ..response.refusals import TokenExpired, TokenInvalid
from ..stores.process import time_of_day
from .fingerprint import Keyring, as_bytes
from .forms import form_of
from .identity import Identities, Identity
from .key_header import environ_key

_ID_BYTES = 16
_LONGEST_TOKEN = 256
_PURPOSES_REMEMBERED = 64
_PURPOSE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
PURPOSE_RULE = "A token's purpose is 1 to 64 letters, digits, '_', '.' and '-'."


@dataclass(eq=False, repr=False, slots=True)
class Token:
    """A token whose signature is good, and its bearer; times are in seconds since 1970."""

    name: bytes  # the text whose keyed hash is part of the store key
    purpose: str | None
    issued: float
    expires: float
    # The signed-in user who sent it, or for whom it is issued; `NOBODY` for a guest.
    bearer: Identity
    text: str  # the token as the client has it


def check_purpose(purpose: object) -> None:
    """Raise a ValueError for a purpose of another form; None is no purpose."""
    if purpose is not None and not (isinstance(purpose, str) and _PURPOSE.fullmatch(purpose)):
        raise ValueError(PURPOSE_RULE)


def _quoted(purpose: str | None) -> str:
    return "no purpose" if purpose is None else f"the purpose {purpose!r}"


class _HmacSha256(SigningAlgorithm):
    """The algorithm that itsdangerous would use, in a third of its time."""

    def get_signature(self, key: bytes, value: bytes) -> bytes:
        return hmac.digest(key, value, "sha256")


class Tokens:
    """Signs and checks the tokens of one application."""

    # The wall clock, whose seconds go into the tokens.
    clock: Callable[[], float] = staticmethod(time_of_day)

    def __init__(self, config: Config, identities: Identities, keyring: Keyring) -> None:
        self._config = config
        self._identities = identities
        self._keyring = keyring
        self._ttl = config.token_ttl
        self._purposes: dict[str | None, None] = {None: None}
        self._signer_with = functools.lru_cache(maxsize=64)(self._make_signer)

    def make(self, app: Flask, request: Request | None, purpose: str | None) -> Token:
        """Return a new token, bound to the signed-in user if there is one."""
        check_purpose(purpose)
        if app.debug and len(self._purposes) < _PURPOSES_REMEMBERED:
            self._purposes[purpose] = None
        unique = base64.urlsafe_b64encode(os.urandom(_ID_BYTES)).rstrip(b"=")
        text = self._signer(app, purpose).sign(unique).decode("ascii")
        bearer, now = self._identities.bearer_of(app, request), self.clock()
        return Token(b"token " + unique, purpose, now, now + self._ttl, bearer, text)

    def sent_with(self, request: Request) -> str | None:
        token: str | None = request.environ.get(environ_key(self._config.token_header))
        if token is not None:
            return token
        form = form_of(request)
        tokens = set(form.fields.get(self._config.token_field, ()) if form else ()) - {""}
        if len(tokens) > 1:
            raise TokenInvalid().because(f"{self._config.token_field} came with several values")
        return tokens.pop() if tokens else None

    def read(self, app: Flask, request: Request | None, text: str, purpose: str | None) -> Token:
        """Return a token and its bearer, its age unchecked."""
        name, issued = self.verify(app, text, purpose)
        bearer = self._identities.bearer_of(app, request)
        return Token(name, purpose, issued, issued + self._ttl, bearer, text)

    def verify(self, app: Flask, text: str, purpose: str | None = None) -> tuple[bytes, float]:
        """Check a token's signature alone."""
        if not text.isascii() or len(text) > _LONGEST_TOKEN:
            raise TokenInvalid().because("it does not have the form of a token")
        try:
            unique, issued = self._signer(app, purpose).unsign(text, return_timestamp=True)
        except BadSignature:
            raise TokenInvalid().because(self._fault(app, text, purpose)) from None
        return b"token " + unique, issued.timestamp()

    def check_age(self, token: Token, skew: float = 0) -> None:
        age = self.clock() - token.issued
        if age > self._ttl + skew:
            raise TokenExpired().because(
                f"it is {age:.0f} seconds old, and IDEMPOTENCE_TOKEN_TTL is {self._ttl:g}"
            )

    def _fault(self, app: Flask, text: str, purpose: str | None) -> str:
        """Return the fault of a signature; in debug mode also the purpose it would be good for."""
        for other in tuple(self._purposes) if app.debug else ():
            if other != purpose and self._signer(app, other).validate(text):
                return f"it was issued for {_quoted(other)}, and this is for {_quoted(purpose)}"
        return f"it was altered, or signed with another SECRET_KEY, or not for {_quoted(purpose)}"

    def _signer(self, app: Flask, purpose: str | None) -> TimestampSigner:
        return self._signer_with(self._keyring.secrets(app), purpose)

    def _make_signer(
        self, secrets: tuple[str | bytes, ...], purpose: str | None
    ) -> TimestampSigner:
        salt = f"flask-idempotence/token/{purpose or ''}".encode()
        signer = TimestampSigner(
            [hmac.digest(as_bytes(secret), salt, "sha256") for secret in secrets],
            key_derivation="none",
            digest_method=hashlib.sha256,
            algorithm=_HmacSha256(),
        )
        signer.get_timestamp = lambda: int(self.clock())  # type: ignore[method-assign]  # injected
        return signer
