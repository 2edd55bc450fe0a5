"""Connections of our own, like those of the application's client.

They are not the client's: its retries, timeouts and decoding do not apply here, and it is not
altered.
"""

from __future__ import annotations

import contextlib
import functools
import select
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.retry import Retry

from .deadline import deadline

Command = tuple[str | bytes | int, ...]
Reply = Any

_BOUND_TO_A_POOL = ("maint_notifications", "orig_", "event_dispatcher", "himport_")
"""Connection arguments that newer releases of redis-py add for the pool they belong to."""


def pack(command: Command) -> bytes:
    """Write a command as it goes over the wire."""
    parts = [b"*%d\r\n" % len(command)]
    for word in command:
        data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


def read(connection: Any) -> Reply:
    """Read a reply; an error reply is returned, not raised."""
    try:
        return connection.read_response()
    except ResponseError as error:
        return error


def connections_like(
    pool: ConnectionPool, kind: Any, changes: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return what makes connections like a pool's, but within our deadline and without retries.

    Args:
        pool: the client's.
        kind: the class of connections, or None for the pool's.
        changes: arguments in place of the pool's; None leaves one out.
    """
    settings = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if not name.startswith(_BOUND_TO_A_POOL)
    }
    settings.update(
        decode_responses=False,
        encoding="utf-8",
        health_check_interval=0,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        retry_on_timeout=False,
        **_no_maintenance_notifications(),
        **changes,
    )
    left_out = [name for name in changes if changes[name] is None]
    for name in left_out:
        del settings[name]
    return functools.partial(_deadlined(kind or pool.connection_class), **settings)


def _no_maintenance_notifications() -> dict[str, Any]:
    # They relax a connection's timeouts while the server is being moved; the deadline is ours.
    try:
        from redis.maint_notifications import MaintNotificationsConfig  # noqa: PLC0415 - new
    except ImportError:
        return {}
    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}


def _watch_input(connected: Any) -> Callable[[], Any]:
    """Return what says, without waiting, whether a socket has something to read."""
    if hasattr(select, "poll"):
        poller = select.poll()
        poller.register(connected, select.POLLIN)
        return functools.partial(poller.poll, 0)
    # Not on every platform, and some libraries for cooperative threads take it away.
    return lambda: select.select([connected], [], [], 0)[0]


_Version = tuple[tuple[int, ...] | None, ...]


def _version_of_certificates(connection: Any) -> _Version:
    """Return what changes when a file of certificates is replaced or rewritten."""
    system = ssl.get_default_verify_paths()  # which redis-py loads in any case
    named = (getattr(connection, name, None) for name in ("ca_certs", "certfile", "keyfile"))
    directory = getattr(connection, "ca_path", None)
    paths = [*named, system.cafile, system.capath, directory]
    with contextlib.suppress(OSError, TypeError):
        if directory is not None:
            paths += sorted(Path(directory).iterdir())
    return tuple(_version_of(path) for path in paths)


def _version_of(path: Any) -> tuple[int, ...] | None:
    try:
        found = Path(path).stat()
    except (OSError, TypeError, ValueError):
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


class _TlsContext:
    """The SSL context of all connections to one place, made anew when a certificate file changes.

    Making it takes some 40 ms, most of it for loading the system's certificates: many threads that
    connect at once would spend their whole deadline on it.
    """

    def __init__(self) -> None:
        self._made: tuple[_Version, Any] | None = None
        self._making = threading.Lock()

    def _context(self, version: _Version) -> Any:
        made = self._made
        return None if made is None or made[0] != version else made[1]

    def wrap(self, connection: Any, make_and_wrap: Callable[[Any], Any], plain: Any) -> Any:
        """Return a socket with TLS around it, its handshake done."""
        if getattr(connection, "ssl_validate_ocsp", False) or getattr(
            connection, "ssl_validate_ocsp_stapled", False
        ):
            return make_and_wrap(plain)  # which looks at the certificate, too
        version = _version_of_certificates(connection)  # before the files are read
        if self._context(version) is None and self._making.acquire(timeout=deadline.left() / 4):
            try:
                if self._context(version) is None:
                    wrapped = make_and_wrap(plain)
                    self._made = (version, wrapped.context)
                    return wrapped
            finally:
                self._making.release()
        context = self._context(version)
        if context is None:  # the thread that makes it waits for a handshake
            return make_and_wrap(plain)
        return context.wrap_socket(plain, server_hostname=connection.host)


def _deadlined(connection_class: Any) -> Any:
    """Return a kind of connection whose every wait ends at the calling thread's deadline."""
    tls = _TlsContext()

    class DeadlinedConnection(connection_class):  # type: ignore[misc]  # the base is given
        def _wrap_socket_with_ssl(self, sock: Any) -> Any:
            return tls.wrap(self, super()._wrap_socket_with_ssl, sock)

        def _connect(self) -> Any:
            left = deadline.left()
            self.socket_connect_timeout = left / 2  # a name may have a second address
            self.socket_timeout = left
            connected = super()._connect()
            self.has_input = _watch_input(connected)
            return _DeadlinedSocket(connected)

    return DeadlinedConnection


class _DeadlinedSocket:
    """A socket whose every wait ends at the calling thread's deadline.

    A time-out of the socket's own would begin anew with each byte that a slow server sends.
    """

    def __init__(self, connected: Any) -> None:
        self._connected = connected

    def sendall(self, data: bytes) -> None:
        self._connected.settimeout(deadline.left())
        self._connected.sendall(data)

    def recv(self, *arguments: Any) -> Any:
        self._connected.settimeout(deadline.left())
        return self._connected.recv(*arguments)

    def recv_into(self, *arguments: Any) -> Any:
        self._connected.settimeout(deadline.left())
        return self._connected.recv_into(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected, name)
