"""The remembered response, as bytes.

    record     = %x01 checksum content              plain
               / %x02 Fernet(key-digest record)     encrypted, authenticated, bound to its key
    checksum   = CRC-32 of the content, 4 bytes
    content    = "B" status headers %x00 body
               / "Z" Zlib(status headers %x00 body)
               / "N" status                         the response was streamed or too large
               / "J" JSON                           the result of `once`
    status     = 2 bytes
    headers    = *( code [name] value )             see `contents`
    name/value = 2 bytes of length, text

The first byte is the version: whoever does not know it must not guess.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

from .contents import fill, head_of
from .errors import ConfigurationError

if TYPE_CHECKING:
    from flask import Response

    from .config import Config

_PLAIN = b"\x01"
_ENCRYPTED = b"\x02"
_WITH_BODY = b"B"
_COMPRESSED = b"Z"
_WITHOUT_BODY = b"N"
_RESULT = b"J"

_MOST_HEADERS = 262_144
"""Bytes of status and headers that are remembered; servers take far fewer."""

_WORTH_COMPRESSING = 512
"""Bytes; below that there is little to be saved."""


class UnreadableRecord(Exception):
    """A record is damaged, of an unknown version, or not to be trusted; the text says which."""


class Records:
    """Makes records of responses, and responses of records.

    Args:
        config: for the largest body and the keys to encrypt with.

    Raises:
        ConfigurationError: there are keys, and nothing to encrypt with.
    """

    def __init__(self, config: Config) -> None:
        self._max_body = config.key_max_body
        self._vault = _vault(config.key_encryption_keys) if config.key_encryption_keys else None

    def remember(self, key: str, response: Response) -> bytes:
        """Return the record of a response.

        Args:
            key: the store key that it is for; an encrypted record is good for no other.
            response: the response. Where it is streamed, or its body is too large, only its
                status is remembered.
        """
        content = self._content(response)
        return self._seal(key, content)

    def remember_status(self, key: str, status: int) -> bytes:
        """Return a record that only says that there was a response."""
        return self._seal(key, _WITHOUT_BODY + struct.pack(">H", status))

    def remember_result(self, key: str, result: Any) -> bytes:
        """Return the record of a result; one over `IDEMPOTENCE_KEY_MAX_BODY` is left out of it.

        Raises:
            TypeError: it is not made of what JSON is made of.
        """
        try:
            text = json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except Exception as error:
            raise TypeError(f"Not to be had as JSON: {error}") from error
        content = text.encode("utf-8", "surrogatepass")
        if len(content) > self._max_body:
            return self.remember_status(key, 0)
        return self._seal(key, _RESULT + content)

    def result(self, key: str, record: bytes) -> Any:
        """Return the result that a record remembers.

        Raises:
            UnreadableRecord: it remembers none, or it cannot be told what it holds.
        """
        content = self._open(key, record)
        if content[:1] != _RESULT:
            raise UnreadableRecord("one without a result")
        try:
            return json.loads(content[1:].decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise UnreadableRecord(f"damaged: {type(error).__name__}") from None

    def replay(self, key: str, record: bytes, response: Response) -> bool:
        """Fill a response with what a record remembers.

        Returns:
            Whether it holds a response at all.

        Raises:
            UnreadableRecord: it cannot be told what it holds.
        """
        content = self._open(key, record)
        kind = content[:1]
        try:
            if kind == _WITHOUT_BODY:
                return False
            if kind == _COMPRESSED:
                fill(response, self._decompress(content[1:]))
            elif kind == _WITH_BODY:
                fill(response, content[1:])
            else:
                raise UnreadableRecord("an unknown kind of content")
        except (struct.error, IndexError, KeyError, ValueError, zlib.error) as error:
            raise UnreadableRecord(f"damaged: {type(error).__name__}") from None
        return True

    def _content(self, response: Response) -> bytes:
        status = response.status_code
        nothing = _WITHOUT_BODY + struct.pack(">H", status if 0 <= status <= 0xFFFF else 0)
        if response.is_streamed or response.direct_passthrough:
            return nothing
        body = response.get_data()
        if len(body) > self._max_body:
            return nothing
        try:
            head = head_of(response)
        except struct.error:  # a header of more than 64 kB
            return nothing
        if len(head) > _MOST_HEADERS:
            return nothing
        return _compact(head + body)

    def _decompress(self, compressed: bytes) -> bytes:
        # A thousand times its size may be in it, and who can write to the store need not be kind.
        largest = _MOST_HEADERS + self._max_body
        decompressor = zlib.decompressobj()
        content = decompressor.decompress(compressed, largest + 1)
        if len(content) > largest:
            raise UnreadableRecord("larger than IDEMPOTENCE_KEY_MAX_BODY allows")
        if not decompressor.eof:
            raise UnreadableRecord("damaged: it is cut off")
        return content

    def _seal(self, key: str, content: bytes) -> bytes:
        record = _PLAIN + struct.pack(">I", zlib.crc32(content)) + content
        if self._vault is None:
            return record
        sealed: bytes = self._vault.encrypt(_digest(key) + record)
        return _ENCRYPTED + sealed

    def _open(self, key: str, record: bytes) -> bytes:
        version = record[:1]
        if self._vault is not None:
            if version != _ENCRYPTED:
                raise UnreadableRecord("not encrypted, although there are keys to encrypt with")
            record = _decrypt(self._vault, key, record[1:])
            version = record[:1]
        elif version == _ENCRYPTED:
            raise UnreadableRecord("encrypted, and IDEMPOTENCE_KEY_ENCRYPTION_KEYS is empty")
        if version != _PLAIN:
            raise UnreadableRecord(f"of an unknown version: {version.hex() or 'empty'}")
        content = record[5:]
        if record[1:5] != struct.pack(">I", zlib.crc32(content)):
            raise UnreadableRecord("damaged: the checksum does not fit")
        return content


def _compact(whole: bytes) -> bytes:
    if len(whole) >= _WORTH_COMPRESSING:
        # A small window: of the default one, making it ready takes longer than compressing.
        compressor = zlib.compressobj(level=1, wbits=12, memLevel=5)
        compressed = compressor.compress(whole) + compressor.flush()
        if len(compressed) < len(whole):
            return _COMPRESSED + compressed
    return _WITH_BODY + whole


def _decrypt(vault: Any, key: str, sealed: bytes) -> bytes:
    from cryptography.fernet import InvalidToken  # noqa: PLC0415 - an extra

    try:
        opened: bytes = vault.decrypt(sealed)
    except InvalidToken:
        raise UnreadableRecord("encrypted with another key, or forged") from None
    if opened[:16] != _digest(key):
        raise UnreadableRecord("made for another key")
    return opened[16:]


def _vault(keys: tuple[bytes, ...]) -> Any:
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
