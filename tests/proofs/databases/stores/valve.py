"""A valve in front of a server: what arrives while it is shut is neither read nor lost."""

import contextlib
import importlib
import socket
import sys
from types import SimpleNamespace

from helpers.servers.processes import HOST

_SMALL = 16384
"""Bytes of the buffers: whoever sends more than a few of them waits."""


def _original(module, name):
    """Return a function as it was before gevent: a valve is no part of what it is in front of."""
    if "gevent" in sys.modules:
        return sys.modules["gevent.monkey"].get_original(module, name)
    return getattr(importlib.import_module(module), name)


class Valve:
    """Forward connections to a port, and hold up what a fault says, until it is opened.

    `is_shut` holds up everything. `greetings` holds up each new connection after so many packets
    of the server's; `marker`, the answer to a packet in which it occurs, and all that follows.
    """

    def __init__(self, port: int):
        self._target = port
        self._socket = _original("socket", "socket")
        self._start = _original("_thread", "start_new_thread")
        self._select, self._sleep = _original("select", "select"), _original("time", "sleep")
        self._listener = self._socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
        self._listener.bind((HOST, 0))
        self._listener.listen(500)
        self.port = self._listener.getsockname()[1]
        self.open()
        self._start(self._accept, ())

    def open(self) -> None:
        self.is_shut, self.greetings, self.marker = False, None, None

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._start(self._carry, (self._listener.accept()[0],))

    def _carry(self, client) -> None:
        link = SimpleNamespace(left=self.greetings, marked=None)
        with contextlib.suppress(OSError), client, self._socket() as server:
            server.connect((HOST, self._target))
            while True:
                if self._holds(link):
                    self._sleep(0.005)
                    continue
                for sender in self._select([client, server], [], [], 0.02)[0]:
                    if self._holds(link):
                        break
                    chunk = sender.recv(65536)
                    if not chunk:
                        return
                    (server if sender is client else client).sendall(chunk)
                    if sender is server and link.left is not None:
                        link.left -= 1
                    if sender is client and self.marker and self.marker in chunk:
                        link.marked = self.marker

    def _holds(self, link: SimpleNamespace) -> bool:
        is_greeted = self.greetings is not None and link.left is not None and link.left <= 0
        return (
            self.is_shut or is_greeted or (link.marked is not None and link.marked == self.marker)
        )
