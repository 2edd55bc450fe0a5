"""One-time tokens: signed when issued, stored for their lifetime, spent once."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from itsdangerous import BadSignature, TimestampSigner

from ..config.settings import CLOCK_SKEW
from ..request.forms import values_of
from ..response.refusals import Refusal, TokenExpired, TokenInvalid, TokenNotYours, TokenSpent
from ..signals import token_issued, token_spent
from ..stores.base import Outcome, TokenOutcome
from .claim import Attempt
from .debug_log import note_identity

if TYPE_CHECKING:
    from flask import Flask, Request

    from .engine import Engine

_ID_BYTES = 16
_LONGEST_TOKEN = 256
_MAX_KNOWN_PURPOSES = 64
_PURPOSE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
PURPOSE_RULE = "A token's purpose is 1 to 64 letters, digits, '_', '.' and '-'."


@dataclass(frozen=True, slots=True)
class Token:
    """A token whose signature is good; its times are of the wall clock."""

    key: str
    purpose: str | None
    issued: float
    expires: float


@dataclass(frozen=True, slots=True)
class Spent:
    """A token that was taken out of the store.

    Attributes:
        subject: keyed hash of the user who spent it; empty for a guest.
        again: whether it had been put back before.
    """

    token: Token
    subject: bytes
    again: bool


def is_purpose(text: str) -> bool:
    """Whether a token may be issued for this purpose."""
    return _PURPOSE.fullmatch(text) is not None


class Tokens:
    """Issues and spends the tokens of one application."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ttl = engine.config.token_ttl
        self.clock: Callable[[], float] = time.time  # tokens hold its seconds
        self._purposes: dict[str | None, None] = {None: None}
        self._signer_with = functools.lru_cache(maxsize=64)(self._make_signer)

    def issue(self, app: Flask, request: Request | None, purpose: str | None) -> str:
        """Issue a token; it raises as `Idempotence.issue_token` does."""
        if purpose is not None and not is_purpose(purpose):
            raise ValueError(PURPOSE_RULE)
        if app.debug and len(self._purposes) < _MAX_KNOWN_PURPOSES:
            self._purposes[purpose] = None
        attempt = Attempt(app, "token", request.endpoint if request is not None else None)
        unique = base64.urlsafe_b64encode(os.urandom(_ID_BYTES)).rstrip(b"=")
        key = self._key(attempt, unique, purpose)
        subject = self._subject(attempt, request)
        # Where tokens are switched off, pages go on working without a store.
        is_on = self._engine.switches.is_on(app, "IDEMPOTENCE_TOKEN_ENABLED")
        put = self._engine.policy.ask if is_on else self._engine.policy.tell

        def store() -> bool:
            self._engine.store.put_token(key, subject, self._ttl)
            return True

        try:
            is_stored = put(attempt, "put_token", store)
        except Refusal as refusal:
            self._engine.announce(refusal, attempt)
            raise
        if is_stored:  # else it cannot be spent, and `store_failed` was sent
            attempt.emit(token_issued, purpose=purpose)
        return self._signer(app, purpose).sign(unique).decode("ascii")

    def sent_with(self, request: Request) -> str | None:
        """Return the token in a request's header or form, or None.

        Raises:
            TokenInvalid: the form holds several.
        """
        config = self._engine.config
        token = request.headers.get(config.token_header)
        if token is not None:
            return token
        tokens = set(values_of(request, config.token_field)) - {""}
        if len(tokens) > 1:
            raise TokenInvalid().because(f"{config.token_field} came with several values")
        return tokens.pop() if tokens else None

    def read(self, attempt: Attempt, token: str, purpose: str | None) -> Token:
        """Check a token's signature, as `verify` does, and its age (`TokenExpired`)."""
        known = self.verify(attempt, token, purpose)
        if known.expires < self.clock() - CLOCK_SKEW:
            raise self._expired(known)
        return known

    def verify(self, attempt: Attempt, token: str, purpose: str | None = None) -> Token:
        """Check a token's signature alone.

        Raises:
            TokenInvalid: it was not issued by this application for this purpose.
        """
        if not token.isascii() or len(token) > _LONGEST_TOKEN:
            raise TokenInvalid().because("it does not have the form of a token")
        signer = self._signer(attempt.app, purpose)
        try:
            unique, issued = signer.unsign(token, return_timestamp=True)
        except BadSignature:
            raise self._bad_signature(attempt.app, token, purpose) from None
        key = self._key(attempt, unique, purpose)
        issued_at = issued.timestamp()
        return Token(key, purpose, issued_at, issued_at + self._ttl)

    def spend(self, attempt: Attempt, request: Request | None, token: Token) -> Spent | None:
        """Take a token out of the store; None where it does not answer and the policy is to allow.

        Raises:
            TokenNotYours, TokenExpired, TokenSpent: it cannot be taken.
            StoreUnavailable: the store does not answer, and the policy is to refuse.
        """
        subject = self._subject(attempt, request)
        outcome = self._engine.policy.ask(
            attempt, "take_token", lambda: self._engine.store.take_token(token.key, subject)
        )
        if outcome is None:
            return None
        if outcome is TokenOutcome.NOT_YOURS:
            sender = "another user than this one" if subject else "a user, and this is a guest"
            raise TokenNotYours().because(f"it was issued to {sender}")
        if outcome is TokenOutcome.ABSENT:
            if token.expires < self.clock():
                raise self._expired(token)
            raise TokenSpent().because("it has been spent, or the store no longer knows it")
        attempt.emit(token_spent, purpose=token.purpose)
        return Spent(token, subject, again=outcome is TokenOutcome.TAKEN_AGAIN)

    def put_back(self, spent: Spent) -> Outcome:
        """Store a spent token again, for the same user and the rest of its lifetime."""
        left = spent.token.expires - self.clock()
        if left > 0:
            self._engine.store.put_token(spent.token.key, spent.subject, left, again=True)
        return Outcome.OK

    def _expired(self, token: Token) -> TokenExpired:
        age = self.clock() - token.issued
        return TokenExpired().because(
            f"it is {age:.0f} seconds old, and IDEMPOTENCE_TOKEN_TTL is {self._ttl:g}"
        )

    def _bad_signature(self, app: Flask, token: str, purpose: str | None) -> TokenInvalid:
        wanted = _described(purpose)
        for other in tuple(self._purposes) if app.debug else ():
            if other != purpose and self._signer(app, other).validate(token):
                return TokenInvalid().because(
                    f"it was issued for {_described(other)}, and this is for {wanted}"
                )
        return TokenInvalid().because(
            f"it was altered, or signed with another SECRET_KEY, or not for {wanted}"
        )

    def _subject(self, attempt: Attempt, request: Request | None) -> bytes:
        app = attempt.app
        bearer = self._engine.identities.bearer_of(app, request) if request is not None else ""
        note_identity(attempt, bearer)
        if not bearer:
            return b""
        subject = f"subject {bearer}".encode("utf-8", "surrogatepass")
        return self._engine.keyring.digest(app, subject)

    def _key(self, attempt: Attempt, unique: bytes, purpose: str | None) -> str:
        digest = self._engine.keyring.digest(attempt.app, b"token " + unique)
        return self._engine.name_key(attempt, digest, part=purpose or "-")

    def _signer(self, app: Flask, purpose: str | None) -> TimestampSigner:
        return self._signer_with(tuple(self._engine.keyring.signing_keys(app)), purpose)

    def _make_signer(self, secrets: tuple[bytes, ...], purpose: str | None) -> TimestampSigner:
        salt = f"flask-idempotence/token/{purpose or ''}".encode()
        signer = TimestampSigner(
            [hmac.digest(secret, salt, "sha256") for secret in secrets],
            key_derivation="none",
            digest_method=hashlib.sha256,
        )
        signer.get_timestamp = lambda: int(self.clock())  # type: ignore[method-assign]  # injected
        return signer


def _described(purpose: str | None) -> str:
    return "no purpose" if purpose is None else f"the purpose {purpose!r}"
