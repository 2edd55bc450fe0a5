"""Servers that fail on purpose, or say what a test tells them, and a proxy that loses things."""

import contextlib
import importlib
import socket
import struct
import sys
import threading
import time
from types import SimpleNamespace

from flask_idempotence.stores.redis.store import CLAIM as _CLAIM
from helpers.servers.processes import HOST, ServerProcess

CLAIM = (b"\r\nNX\r\n", _CLAIM.digest.encode())
"""Markers of a claim: by plain commands, or by the script."""

_AT_ONCE = struct.pack("ii", 1, 0)
_SMALL = 16384
"""Bytes of the buffer for what a proxy has yet to read: whoever sends much more waits."""


class SilentServer:
    def __enter__(self):
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self.address = f"{HOST}:{self._listener.getsockname()[1]}"
        self.url = f"redis://{self.address}/0"
        return self

    def __exit__(self, *_):
        self._listener.close()


class ScriptedServer:
    """A server that answers each packet as it is told, over real connections."""

    def __enter__(self):
        self._listener = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._listener.getsockname()[1]}"
        self.url = f"redis://{self.address}/1"
        self.packets = []
        self.connections = []
        self.handshake_takes = 0.0
        self.answer = lambda connection, packet: connection.sendall(b"+PONG\r\n")
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError):
            while packet := connection.recv(65536):
                if b"SELECT" in packet:
                    time.sleep(self.handshake_takes)
                    connection.sendall(b"+OK\r\n")
                else:
                    self.packets.append(packet)
                    self.answer(connection, packet)

    def __exit__(self, *_):
        for each in (self._listener, *self.connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _original(module, name):
    """Return a function as it was before gevent: a proxy is no part of what it is in front of."""
    if "gevent" in sys.modules:
        return sys.modules["gevent.monkey"].get_original(module, name)
    return getattr(importlib.import_module(module), name)


class Proxy:
    """A proxy in front of a server, with faults to switch on.

    ``drop_replies``: a request reaches the server, its reply is swallowed and the connection
    closed. ``black_hole``: connections are taken and nothing is forwarded either way. ``delay``:
    seconds for which whatever arrives is held up before it is forwarded, even if its sender has
    left meanwhile. ``forget_connections``: what arrives on those that are open goes nowhere from
    now on, as behind a firewall that was restarted; new ones work. ``resets``: a connection whose
    reply is lost is reset, not closed. ``carried``: the requests that were forwarded.
    ``drops_left``: the replies that have yet to be lost.

    Others hold up what arrives, which is neither read nor lost, until ``let_go``: ``is_shut`` all
    of it; ``greetings`` what follows so many packets of the server on a new connection;
    ``marker`` the reply to a request that contains it, and all that follows.
    """

    def __init__(self, server: ServerProcess):
        self.port = 0
        self.black_hole = False
        self.delay = 0.0
        self.drop_replies = self.resets = False
        self._server = server
        self.drops_left, self._markers = 0, (b"",)
        self.carried = []
        self._lock = _original("_thread", "allocate_lock")()
        self._listening = False
        self._running = []
        self._forgotten = 0
        self._socket, self._select = _original("socket", "socket"), _original("select", "select")
        self._start = _original("_thread", "start_new_thread")
        self._sleep = _original("time", "sleep")
        self.let_go()

    def __enter__(self):
        self.accept()
        return self

    def __exit__(self, *_):
        self.refuse()

    def drop_next_replies(self, count: int, *, after: bytes | tuple[bytes, ...] = b"") -> None:
        """Lose the replies to the next requests that contain the marker, or one of some."""
        with self._lock:
            self.drops_left = count
            self._markers = after if isinstance(after, tuple) else (after,)

    def forget_connections(self) -> None:
        self._forgotten += 1

    def let_go(self) -> None:
        self.is_shut, self.greetings, self.marker = False, None, None

    def lead_to(self, server: ServerProcess) -> None:
        """Carry new connections to another server; those that are open stay where they are."""
        self._server = server

    def accept(self) -> None:
        """Listen: the first time on a free port, then always on the same."""
        if not self._listening:
            self._listener = self._socket()
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
            self._listener.bind((HOST, self.port))
            self._listener.listen(500)
            self.port = self._listener.getsockname()[1]
            self.url = f"redis://{HOST}:{self.port}/0"
            self._listening = True
            self._run(self._take_connections)

    def refuse(self) -> None:
        """Listen no more, and wait until all connections are closed."""
        self._listening = False
        while self._running:
            self._sleep(0.001)

    def _run(self, function, *arguments) -> None:
        self._running.append(function)

        def run():
            try:
                function(*arguments)
            finally:
                self._running.remove(function)

        self._start(run, ())

    def _take_connections(self) -> None:
        with self._listener:
            while self._listening:
                if self._select([self._listener], [], [], 0.02)[0]:
                    self._run(self._carry, self._listener.accept()[0])

    def _carry(self, client: socket.socket) -> None:
        link = SimpleNamespace(left=self.greetings, marked=None, forgotten=self._forgotten)
        with contextlib.suppress(OSError), client, self._socket() as server:
            server.connect((HOST, self._server.port))
            link.client, link.server, link.is_open = client, server, True
            while self._listening and link.is_open:
                if self._holds(link):
                    self._sleep(0.005)
                    continue
                for sender in self._select([client, server], [], [], 0.02)[0]:
                    if link.is_open and not self._holds(link):
                        self._forward(link, sender)

    def _forward(self, link: SimpleNamespace, sender: socket.socket) -> None:
        chunk = sender.recv(65536)
        link.is_open = bool(chunk)
        if not chunk or self.black_hole or link.forgotten < self._forgotten:
            return
        if self.delay:
            self._sleep(self.delay)
        if sender is link.server:
            link.client.sendall(chunk)
            link.left = None if link.left is None else link.left - 1
            return
        self.carried.append(chunk)
        link.server.sendall(chunk)
        if self.marker and self.marker in chunk:
            link.marked = self.marker
        if self._drops_reply_to(chunk):
            link.is_open = False
            link.server.recv(65536)
            if self.resets:
                link.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)

    def _holds(self, link: SimpleNamespace) -> bool:
        is_greeted = self.greetings is not None and link.left is not None and link.left <= 0
        is_marked = link.marked is not None and link.marked == self.marker
        return self.is_shut or is_greeted or is_marked

    def _drops_reply_to(self, request: bytes) -> bool:
        with self._lock:
            if self.drops_left and any(marker in request for marker in self._markers):
                self.drops_left -= 1
                return True
        return self.drop_replies
