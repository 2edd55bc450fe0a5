"""One SSL context for many connections."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .wire import deadline

_FILES = ("ca_certs", "certfile", "keyfile", "ca_path")
_Version = tuple[tuple[int, ...] | None, ...]


class TlsContext:
    """The SSL context of all connections to one place, renewed when a certificate file changes.

    Making one takes some 40 ms, most of it to load the system's certificates: many threads that
    connect at once would spend their whole deadline on it.
    """

    def __init__(self) -> None:
        self._made: tuple[_Version, ssl.SSLContext] | None = None
        self._making = threading.Lock()

    def wrap(
        self,
        connection: object,
        wrap: Callable[[socket.socket], ssl.SSLSocket],
        plain: socket.socket,
    ) -> ssl.SSLSocket:
        """Return a socket with TLS around it, its handshake done; `wrap` is redis-py's way."""
        names = ("ssl_validate_ocsp", "ssl_validate_ocsp_stapled")
        if any(getattr(connection, name, False) for name in names):
            return wrap(plain)  # which also asks the authority
        version = _version_of_files(connection)  # before the files are read
        if self._current(version) is None and self._making.acquire(timeout=deadline.left() / 4):
            try:
                if self._current(version) is None:
                    with socket.socket() as unconnected, wrap(unconnected) as wrapped:
                        self._made = (version, wrapped.context)
            finally:
                self._making.release()
        context = self._current(version)
        if context is None:  # another thread is still making it
            return wrap(plain)
        return context.wrap_socket(plain, server_hostname=getattr(connection, "host", None))

    def _current(self, version: _Version) -> ssl.SSLContext | None:
        made = self._made
        return made[1] if made is not None and made[0] == version else None


def _version_of_files(connection: object) -> _Version:
    system = ssl.get_default_verify_paths()  # redis-py loads these in any case
    paths = [getattr(connection, name, None) for name in _FILES]
    if directory := paths[-1]:
        with suppress(OSError, TypeError):
            paths += sorted(Path(directory).iterdir())
    return tuple(_version_of(path) for path in (*paths, system.cafile, system.capath) if path)


def _version_of(path: Path | str) -> tuple[int, ...] | None:
    try:
        found = Path(path).stat()
    except (OSError, TypeError, ValueError):
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
