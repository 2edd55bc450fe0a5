"""The key of a request, and the header that carries it."""

from __future__ import annotations

import re
import uuid
from collections.abc import MutableMapping
from dataclasses import dataclass

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # RFC 9110, section 9.2.1

_TO_BE_ESCAPED = re.compile(r'(["\\])')


def new_key() -> str:
    """Return a new key: a UUID of 122 random bits, as text."""
    return str(uuid.uuid4())


@dataclass(frozen=True, slots=True)
class KeyHeader:
    """The header's name, and whether the key is quoted, as a String of Structured Fields."""

    name: str = "Idempotency-Key"
    quoted: bool = False

    def put_into(self, headers: MutableMapping[str, str]) -> None:
        """Give a request its key: the one that it has, else a new one.

        The key stays with the request: it goes along where the request is redirected, and can be
        read from it (and sent again with it) when all attempts have failed.
        """
        key = headers.get(self.name)
        if key is None:
            key = new_key()
        if self.quoted and isinstance(key, str) and not key.startswith('"'):
            key = '"' + _TO_BE_ESCAPED.sub(r"\\\1", key) + '"'
        headers[self.name] = key


def needs_key(method: str | None) -> bool:
    """Whether a method is unsafe, so that it must not be carried out twice."""
    return method is not None and method.upper() not in SAFE_METHODS
