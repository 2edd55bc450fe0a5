"""The remembered response, as bytes.

    record     = %x01 checksum content              plain
               / %x03 Fernet(key-digest fingerprint expiry record)
                                                    encrypted, authenticated, bound to its request
    expiry     = milliseconds since 1970, 8 bytes
    checksum   = CRC-32 of the content, 4 bytes
    content    = "B" status headers %x00 body
               / "Z" Zlib(status headers %x00 body)
               / "N" status                         the response was streamed or too large
               / "J" JSON                           the result of `once`
    status     = 2 bytes
    headers    = *( code [name] value )             see `codec`
    name/value = 2 bytes of length, text

The first byte is the version; an unknown one is refused, as is version 2, an encrypted record
that was bound to its key alone.
"""

from __future__ import annotations

import hashlib
import json
import struct
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..config.settings import CLOCK_SKEW
from ..errors import ConfigurationError
from ..stores.base import NO_FINGERPRINT
from .codec import fill, head_of

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet
    from flask import Response

    from ..config.settings import Config

_PLAIN = b"\x01"
_ENCRYPTED = b"\x03"
_WITH_BODY = b"B"
_COMPRESSED = b"Z"
_WITHOUT_BODY = b"N"
_RESULT = b"J"

_MOST_HEADERS = 262_144
"""Bytes of status and headers that are remembered; servers take far fewer."""

_WORTH_COMPRESSING = 512
"""Bytes; below that there is little to be saved."""

_BINDING = struct.Struct(">16s16sQ")
"""Head of an encrypted record: the digest of its store key, its fingerprint, and its expiry."""


class UnreadableRecord(Exception):
    """A record is damaged, of an unknown version, or not to be trusted; the text says which."""


class RecordOfAnotherRequest(UnreadableRecord):
    """An encrypted record is for the same key, and was made for another request."""


class _Binding(Protocol):
    """The claim or request that an encrypted record is bound to."""

    @property
    def key(self) -> str: ...

    @property
    def fingerprint(self) -> bytes: ...


class RecordContext(NamedTuple):
    """The request that meets a record: its store key, and its fingerprint of 16 bytes."""

    key: str
    fingerprint: bytes = NO_FINGERPRINT


class Records:
    """Makes records of responses, and responses of records.

    Args:
        config: for the largest body and the keys to encrypt with.

    Attributes:
        clock: the wall clock, in seconds since 1970.

    Raises:
        ConfigurationError: there are keys, and the package cryptography is not installed.
    """

    clock: Callable[[], float] = time.time

    def __init__(self, config: Config) -> None:
        self._max_body = config.key_max_body
        self._vault = _vault(config.key_encryption_keys) if config.key_encryption_keys else None

    def remember(self, claim: _Binding, response: Response, ttl: float) -> bytes:
        """Return the record of a response.

        Args:
            claim: an encrypted record is good for its key and fingerprint only.
            response: the response. Where it is streamed, or its body is too large, only its
                status is remembered.
            ttl: seconds for which an encrypted record is good, even if the store keeps it longer.
        """
        if (whole := self._whole(response)) is not None:
            return self._seal(claim, _compact(whole), ttl)
        status = response.status_code
        return self.remember_status(claim, status if 0 <= status <= 0xFFFF else 0, ttl)

    def remember_status(self, claim: _Binding, status: int, ttl: float) -> bytes:
        """Return a record that only says that there was a response."""
        return self._seal(claim, _WITHOUT_BODY + struct.pack(">H", status), ttl)

    def remember_result(self, claim: _Binding, result: object, ttl: float) -> bytes:
        """Return the record of a result; one over `IDEMPOTENCE_KEY_MAX_BODY` is left out of it.

        Raises:
            TypeError: it is no JSON value.
        """
        try:
            text = json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except Exception as error:
            raise TypeError(f"Not serialisable as JSON: {error}") from error
        content = text.encode("utf-8", "surrogatepass")
        if len(content) > self._max_body:
            return self.remember_status(claim, 0, ttl)
        return self._seal(claim, _RESULT + content, ttl)

    def result(self, asked: _Binding, record: bytes) -> object:
        """Return the result that a record remembers.

        Raises:
            UnreadableRecord: it remembers none, or it cannot be read.
        """
        content = self._open(asked, record)
        if content[:1] != _RESULT:
            raise UnreadableRecord("without a result")
        try:
            return json.loads(content[1:].decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise UnreadableRecord(f"damaged: {type(error).__name__}") from None

    def replay(self, asked: _Binding, record: bytes, response: Response) -> bool:
        """Fill a response from a record.

        Returns:
            Whether the record holds a response at all.

        Raises:
            RecordOfAnotherRequest: it holds the response to another request with the same key.
            UnreadableRecord: it cannot be read.
        """
        content = self._open(asked, record)
        kind = content[:1]
        if kind == _WITHOUT_BODY:
            return False
        if kind not in (_COMPRESSED, _WITH_BODY):
            raise UnreadableRecord("an unknown kind of content")
        try:
            whole = self._decompress(content[1:]) if kind == _COMPRESSED else content[1:]
            fill(response, whole)
        except (struct.error, IndexError, KeyError, ValueError, zlib.error) as error:
            raise UnreadableRecord(f"damaged: {type(error).__name__}") from None
        return True

    def _whole(self, response: Response) -> bytes | None:
        if response.is_streamed or response.direct_passthrough:
            return None
        body = response.get_data()
        if len(body) > self._max_body:
            return None
        try:
            head = head_of(response)
        except struct.error:  # a header of more than 64 kB
            return None
        return head + body if len(head) <= _MOST_HEADERS else None

    def _decompress(self, compressed: bytes) -> bytes:
        # It may expand a thousandfold, and the writer may be hostile.
        largest = _MOST_HEADERS + self._max_body
        decompressor = zlib.decompressobj()
        content = decompressor.decompress(compressed, largest + 1)
        if len(content) > largest:
            raise UnreadableRecord("larger than IDEMPOTENCE_KEY_MAX_BODY allows")
        if not decompressor.eof:
            raise UnreadableRecord("damaged: it is cut off")
        return content

    def _seal(self, claim: _Binding, content: bytes, ttl: float) -> bytes:
        record = _PLAIN + struct.pack(">I", zlib.crc32(content)) + content
        if self._vault is None:
            return record
        expires = round((self.clock() + ttl) * 1000)
        bound = _BINDING.pack(_digest(claim.key), claim.fingerprint, expires)
        return _ENCRYPTED + self._vault.encrypt(bound + record)

    def _open(self, asked: _Binding, record: bytes) -> bytes:
        version = record[:1]
        if version == _PLAIN and self._vault is not None:
            raise UnreadableRecord("not encrypted, although there are keys to encrypt with")
        if version == _ENCRYPTED:
            record = self._decrypt(asked, record[1:])
            version = record[:1]
        if version != _PLAIN:
            raise UnreadableRecord(f"of an unknown version: {version.hex() or 'empty'}")
        content = record[5:]
        if record[1:5] != struct.pack(">I", zlib.crc32(content)):
            raise UnreadableRecord("damaged: the checksum does not fit")
        return content

    def _decrypt(self, asked: _Binding, sealed: bytes) -> bytes:
        if self._vault is None:
            raise UnreadableRecord("encrypted, and IDEMPOTENCE_KEY_ENCRYPTION_KEYS is empty")
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - an extra

        try:
            opened = self._vault.decrypt(sealed)
        except InvalidToken:
            raise UnreadableRecord("encrypted with another key, or forged") from None
        if len(opened) < _BINDING.size:
            raise UnreadableRecord("damaged: it is cut off")
        digest, fingerprint, expires = _BINDING.unpack_from(opened)
        if digest != _digest(asked.key):
            raise UnreadableRecord("made for another key")
        if fingerprint != asked.fingerprint:
            raise RecordOfAnotherRequest("made for another request with this key")
        if self.clock() > expires / 1000 + CLOCK_SKEW:
            raise UnreadableRecord("expired: the store kept it, or it was put back")
        return opened[_BINDING.size :]


def _compact(whole: bytes) -> bytes:
    if len(whole) >= _WORTH_COMPRESSING:
        # A small window: of the default one, making it ready takes longer than compressing.
        compressor = zlib.compressobj(level=1, wbits=12, memLevel=5)
        compressed = compressor.compress(whole) + compressor.flush()
        if len(compressed) < len(whole):
            return _COMPRESSED + compressed
    return _WITH_BODY + whole


def _vault(keys: tuple[bytes, ...]) -> MultiFernet:
    try:
        from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigurationError(
            "IDEMPOTENCE_KEY_ENCRYPTION_KEYS needs the package cryptography: install "
            "flask-idempotence[crypto]."
        ) from None
    return MultiFernet([Fernet(key) for key in keys])


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()[:16]
