"""The remembered response, as bytes that a person can read where they are not compressed.

    record    = "2 " checksum " " content            plain
              / %x03 Fernet(key-digest fingerprint expiry record)
                                                    encrypted, authenticated, bound to its request
    expiry    = milliseconds since 1970, 8 bytes
    checksum  = CRC-32 of the content, 8 hexadecimal digits
    content   = "response " response
              / "deflated " Zlib(response)
              / "bodiless " status                    the response was streamed or too large
              / "unknown"                             the outcome is unknown
              / "result " JSON                        the result of `once`
    response  = status [ " " reason ] LF *( name ": " value LF ) LF body

The reason is left out where it is the usual one. The first byte is the version; an unknown one is
refused, as are version 1, a binary layout, and 0x02, an encrypted record that was bound to its key
alone.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from flask import Response
from flask.json.provider import JSONProvider

from ..config.settings import CLOCK_SKEW, Config
from ..errors import ConfigurationError
from ..stores.process import time_of_day
from .headers import EXPIRES_HEADER, REPLAYED_HEADER, STORED_HEADER, headers_of
from .refusals import OutcomeUnknown

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

_PLAIN = b"2 "
_ENCRYPTED = b"\x03"
_RESPONSE = b"response"
_DEFLATED = b"deflated"
_BODILESS = b"bodiless"
_UNKNOWN = b"unknown"
_RESULT = b"result"

_MOST_HEADERS = 262_144  # bytes of status and headers that are remembered; servers take far fewer
_WORTH_COMPRESSING = 512  # bytes; below that there is little to be saved

# Head of an encrypted record: the digest of its store key, its fingerprint, and its expiry.
_BINDING = struct.Struct(">16s16sQ")

_FORGOTTEN = frozenset(
    {
        # Of one sender or moment.
        *("set-cookie", "date", "authorization", "authentication-info", "www-authenticate"),
        *("proxy-authenticate", "proxy-authorization", "proxy-authentication-info"),
        # Of one connection (RFC 9110, section 7.6.1).
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        "upgrade",
        # Made again for each response.
        "content-length",
        *(name.lower() for name in (EXPIRES_HEADER, REPLAYED_HEADER, STORED_HEADER)),
    }
)


class UnreadableRecord(Exception):
    """A record is damaged, of an unknown version, or not to be trusted; the text says which."""


class RecordOfAnotherRequest(UnreadableRecord):
    """An encrypted record is for the same key, and was made for another request."""


class Bound(Protocol):
    """What an encrypted record is bound to: a claim."""

    @property
    def key(self) -> str: ...
    @property
    def fingerprint(self) -> bytes: ...


class Records:
    """Makes records of responses, and responses of records."""

    clock: Callable[[], float] = staticmethod(time_of_day)  # the wall clock, in seconds since 1970

    def __init__(self, config: Config) -> None:
        self._max_body = config.key_max_body
        self._vault: MultiFernet | None = None
        if config.key_encryption_keys:
            try:
                from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - an extra
            except ImportError:
                raise ConfigurationError(
                    "IDEMPOTENCE_KEY_ENCRYPTION_KEYS needs the package cryptography: install "
                    "flask-idempotence[crypto]."
                ) from None
            self._vault = MultiFernet([Fernet(key) for key in config.key_encryption_keys])

    def remember(self, claim: Bound, response: Response, ttl: float) -> tuple[bytes, bool]:
        """Return the record of a response, and whether it is whole.

        That of one that is streamed or too large holds its status alone.

        An encrypted one is good for the claim's key and fingerprint only, and for `ttl` seconds,
        even if the store keeps it longer.
        """
        is_streamed = response.is_streamed or response.direct_passthrough
        body = b"" if is_streamed else response.get_data()
        head = _head_of(response)
        if is_streamed or len(body) > self._max_body or len(head) > _MOST_HEADERS:
            return self.remember_status(claim, response.status_code, ttl), False
        whole = head + body
        if len(whole) >= _WORTH_COMPRESSING:
            # A small window: of the default one, making it ready takes longer than compressing.
            compressor = zlib.compressobj(level=1, wbits=12, memLevel=5)
            deflated = compressor.compress(whole) + compressor.flush()
            if len(deflated) < len(whole):
                return self._seal(claim, _DEFLATED, deflated, ttl), True
        return self._seal(claim, _RESPONSE, whole, ttl), True

    def remember_status(self, claim: Bound, status: int, ttl: float) -> bytes:
        return self._seal(claim, _BODILESS, b"%d" % status, ttl)

    def remember_unknown(self, claim: Bound, ttl: float) -> bytes:
        """Return a record that only says that the operation may have taken effect, or not."""
        return self._seal(claim, _UNKNOWN, b"", ttl)

    def is_unknown(self, asked: Bound, record: bytes) -> bool:
        try:
            return self._open(asked, record)[0] == _UNKNOWN
        except UnreadableRecord:
            return False

    def remember_result(
        self, claim: Bound, result: object, ttl: float, app_json: JSONProvider
    ) -> bytes:
        """Return the record of a result; one over `IDEMPOTENCE_KEY_MAX_BODY` is left out of it."""
        try:
            text = json.dumps(
                result,
                ensure_ascii=False,
                allow_nan=False,
                separators=(",", ":"),
                default=lambda value: json.loads(app_json.dumps(value)),
            )
        except Exception as error:
            raise TypeError(f"Not serialisable as JSON: {error}") from error
        content = text.encode("utf-8", "surrogatepass")
        if len(content) > self._max_body:
            return self.remember_status(claim, 0, ttl)
        return self._seal(claim, _RESULT, content, ttl)

    def result(self, asked: Bound, record: bytes) -> object:
        kind, content = self._open(asked, record)
        if kind != _RESULT:
            raise UnreadableRecord("without a result")
        try:
            return json.loads(content.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise UnreadableRecord(f"damaged: {type(error).__name__}") from None

    def replay(self, asked: Bound, record: bytes, response: Response) -> bool:
        """Fill a response from a record; return whether it holds one at all."""
        kind, content = self._open(asked, record)
        if kind == _BODILESS:
            return False
        if kind == _UNKNOWN:
            raise OutcomeUnknown
        if kind not in (_DEFLATED, _RESPONSE):
            raise UnreadableRecord("an unknown kind of content")
        try:
            _fill(response, self._decompress(content) if kind == _DEFLATED else content)
        except (ValueError, zlib.error) as error:
            raise UnreadableRecord(f"damaged: {type(error).__name__}") from None
        return True

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

    def _seal(self, claim: Bound, kind: bytes, content: bytes, ttl: float) -> bytes:
        content = kind + b" " + content
        record = b"%s%08x %s" % (_PLAIN, zlib.crc32(content), content)
        if self._vault is None:
            return record
        expires = round((self.clock() + ttl) * 1000)
        bound = _BINDING.pack(_digest(claim.key), claim.fingerprint, expires)
        return _ENCRYPTED + self._vault.encrypt(bound + record)

    def _open(self, asked: Bound, record: bytes) -> tuple[bytes, bytes]:
        is_encrypted = record.startswith(_ENCRYPTED)
        if is_encrypted:
            record = self._decrypt(asked, record[1:])
        if not record.startswith(_PLAIN):
            raise UnreadableRecord(f"of an unknown version: {record[:1].hex() or 'empty'}")
        if self._vault is not None and not is_encrypted:
            raise UnreadableRecord("not encrypted, although there are keys to encrypt with")
        if record[2:11] != b"%08x " % zlib.crc32(record[11:]):
            raise UnreadableRecord("damaged: the checksum does not fit")
        kind, _, content = record[11:].partition(b" ")
        return kind, content

    def _decrypt(self, asked: Bound, sealed: bytes) -> bytes:
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


def _head_of(response: Response) -> bytes:
    """Return status and headers, without the headers of that one response or connection."""
    forgotten, headers = _FORGOTTEN, headers_of(response)
    if named := headers.getlist("connection"):  # what it names is of one, too
        names = ",".join(named).split(",")
        forgotten = _FORGOTTEN.union(name.strip().lower() for name in names)
    code = response.status_code
    lines = [str(code) if response.status == _usual_status(code) else response.status]
    for name, value in headers:
        if name.lower() not in forgotten:
            lines.append(": ".join((name, value)))  # not by str(), which differs in an enumeration
    return "\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")


@lru_cache(maxsize=128)
def _usual_status(code: int) -> str:
    return Response(status=code).status


def _fill(response: Response, content: bytes) -> None:
    head, end, body = content.partition(b"\n\n")
    status, *lines = head.decode("utf-8", "surrogateescape").split("\n")
    if not end or not status.partition(" ")[0].isdecimal():
        raise ValueError
    if status != str(response.status_code):
        response.status = status
    response.headers.clear()
    for line in lines:
        name, value = line.split(": ", 1)
        response.headers.add(name, value)
    response.set_data(body)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()[:16]
